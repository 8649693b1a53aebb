"""Every command of docs/operations.md does what the page says, in the order of the page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from flows.ledger.lease import Owner
from flows.ledgers import ledger_of_run
from flows.workspace import Workspace
from tests.support import light_run
from tests.support.cli import called

pytestmark = pytest.mark.usefixtures("light_stages")

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def commands(language: str) -> list[list[str]]:
    """The commands in blocks of a language."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines() if line.startswith("gatewright ")]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A light project at its first gate, whose passages need no Prefect server."""
    import flows.starting

    def alone(workspace: Any, session: Any, tick: Any = None) -> None:
        passed = light_run.passage(workspace, take_over=session.take_over)
        session.ending, session.error = passed.ending, passed.error

    monkeypatch.setattr(flows.starting, "pass_through", alone)
    project = light_run.make_project(tmp_path / "p")
    assert light_run.passage(light_run.begin(project)).ending == "waiting"
    (project / "runs/r1/logs").mkdir()
    (project / "runs/r1/logs/note.txt").write_text("Li Wei changed the belt")
    return project


def ready_for(words: list[str], workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring the project where the page's command makes sense."""
    if "--take-over" in words:
        ledger = ledger_of_run(workspace)
        ledger.take_lease("r1", owner=Owner("returned-machine", "boot", 1, "tick 1"))
        with ledger.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE leases SET seen_at = '2026-01-01T00:00:00.000000Z'")
    if words[0] == "close":
        monkeypatch.setitem(light_run.HOW, "while_running", lambda context: 1 / 0)
        light_run.decide(workspace)
        assert light_run.passage(workspace).ending == "failed"
    if words[0] == "gc" and "--yes" in words:
        (workspace.project_dir / "ungated" / "old").mkdir(parents=True)


def test_the_commands_of_the_page_work_in_its_order(project: Path, monkeypatch: pytest.MonkeyPatch):
    workspace = Workspace(project, "r1")
    done = commands("sh")
    assert len(done) > 12
    for words in done:
        ready_for(words, workspace, monkeypatch)
        answer = called(*words, cwd=project)
        assert answer.code == (3 if words[0] == "resume" else 0), (words, answer.out, answer.err)
    assert not (project / "runs/r1/logs/note.txt").exists()
    assert not (project / "ungated" / "old").exists()
    assert (project.parent / "moved" / "project.yaml").is_file()


def test_the_commands_that_need_a_server_exist_with_their_options(tmp_path: Path):
    listed = commands("text")
    assert len(listed) == 3
    for words in listed:
        given = [word for word in words[:2] if word.startswith("--") or word == words[0]]
        answer = called(given[0], "--help", cwd=tmp_path)
        assert answer.code == 0
        assert all(option in answer.out for option in given[1:])
