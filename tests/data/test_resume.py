"""Killed in the middle, the preparation goes on after its last complete shard and gives the same bytes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from specs.project import Project
from specs.stages import Quiet
from tasks.data import records
from tasks.data.shards import Shards
from tasks.data.stage import run
from tests.support.raw_project import Finished, make_project, stage_context

SHARD_ROWS = 40
KILLED = """
import os, signal, sys
from pathlib import Path
from specs.stages import Quiet
from tasks.data import {module} as module, records
from tasks.data.stage import run
from tests.support.raw_project import stage_context
from specs.project import Project

records.SHARD_ROWS = {rows}
honest, calls = module.{function}, []

def killing(*arguments):
    calls.append(arguments)
    if len(calls) == {at}:
        os.kill(os.getpid(), signal.SIGKILL)
    return honest(*arguments)

module.{function} = killing
folder, model, out = map(Path, sys.argv[1:4])
run(stage_context(folder, Project.model_validate_json((folder / "spec.json").read_bytes()), model, out), Quiet())
"""


class Told(Quiet):
    """A progress that remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    spec = make_project(tmp_path, "zh")
    (tmp_path / "spec.json").write_text(spec.model_dump_json())
    return spec


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the shards that are made here; shards are small."""
    monkeypatch.setattr(records, "SHARD_ROWS", SHARD_ROWS)
    numbers: list[int] = []
    honest = Shards._make
    monkeypatch.setattr(
        Shards, "_make", lambda self, number, *rest: (numbers.append(number), honest(self, number, *rest))
    )
    return numbers


def test_killed_twice_it_makes_no_finished_shard_again_and_gives_the_same_bytes(
    tmp_path: Path, project: Project, tiny_model: Path, made: list[int]
):
    for module, function, at in (("shards", "write_json", 4), ("artifacts", "write_json", 1)):
        code = KILLED.format(module=module, function=function, at=at, rows=SHARD_ROWS)
        arguments = [str(tmp_path), str(tiny_model), str(tmp_path / "out")]
        assert subprocess.run([sys.executable, "-c", code, *arguments], timeout=300).returncode == -9
        complete = len(list((tmp_path / "out" / "checkpoints").rglob("shard-*.json")))
        assert complete == (3 if module == "shards" else 7)
    progress = Told()
    run(stage_context(tmp_path, project, tiny_model, tmp_path / "out"), progress)
    assert made == []
    assert [line for line in progress.said if "complete" in line] == ["7 of 7 shards were complete already"]
    assert not any((tmp_path / "out" / "checkpoints").iterdir())
    run(stage_context(tmp_path, project, tiny_model, tmp_path / "straight"), Quiet())
    assert made == [1, 2, 3, 4, 5, 6, 7]
    for path in sorted((tmp_path / "straight" / "artifacts").iterdir()):
        assert path.read_bytes() == (tmp_path / "out" / "artifacts" / path.name).read_bytes(), path.name


def test_only_what_is_missing_or_made_of_other_rows_is_made(
    tmp_path: Path, project: Project, tiny_model: Path, made: list[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Shards, "remove", lambda self: None)
    context = stage_context(tmp_path, project, tiny_model, tmp_path / "out")
    run(context, Quiet())
    next((tmp_path / "out" / "checkpoints").rglob("shard-00005.json")).unlink()
    made.clear()
    run(context, Quiet())
    assert made == [5]
    notes = tmp_path / "raw" / "notes.md"
    notes.write_text(notes.read_text("utf-8") + "\nVMC-850 换了滤芯。\n", encoding="utf-8")
    made.clear()
    run(context, Quiet())
    assert made == [1, 2, 3, 4, 5, 6, 7]


def test_the_size_of_shards_changes_nothing_but_row_groups(finished: Finished, tmp_path: Path, made: list[int]):
    run(stage_context(finished.folder, finished.spec, finished.context.base_model, tmp_path), Quiet())
    assert len(made) > 3
    small = replace(finished, out=tmp_path)
    for name in ("samples", "row_ledger", "review_pairs", "quarantine", "masked", "windows", "paragraphs"):
        assert small.table(name) == finished.table(name), name
