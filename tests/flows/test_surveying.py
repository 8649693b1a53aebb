"""The sources of a run are looked through once, and again when something that the look depends on is another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.starting import start_run
from flows.surveying import SOURCES, Look, look, look_once
from flows.workspace import Workspace, frozen_spec
from tasks.models.resolve import ResolvedModel

SPEC = """
project: small
base_model: {model}
sources: [{{kind: work_orders, path: raw/orders.csv, columns: {{phenomenon: Problem, repair: Repair}}}}]
"""


@pytest.fixture
def begun(tmp_path: Path, tiny_model: Path) -> Workspace:
    """A run that has not looked yet."""
    project = tmp_path / "small"
    (project / "raw").mkdir(parents=True)
    (project / "raw" / "orders.csv").write_text("Problem,Repair\nnoisy,new belt\nhot,new fan\n", encoding="utf-8")
    (project / "project.yaml").write_text(SPEC.format(model=tiny_model), encoding="utf-8")
    return start_run(project, "first")


def looked(workspace: Workspace, model: Path, sha256: str = "a" * 64) -> Look:
    resolved = ResolvedModel(folder=model, sha256=sha256, source="m", revision="r", licence="none")
    return look_once(workspace, frozen_spec(workspace), resolved)


def rows_kept(workspace: Workspace, rows: int) -> None:
    """Write another number of rows into the file of the look, to see whether it is read."""
    file = workspace.folder / SOURCES
    kept = json.loads(file.read_bytes())
    kept["summaries"][0]["rows"] = rows
    file.write_text(json.dumps(kept))


def test_a_run_looks_once_until_a_raw_file_the_model_or_the_file_of_the_look_is_another(begun, tiny_model):
    first = looked(begun, tiny_model)
    assert (first.summaries[0]["rows"], first.survey["rows"], first.problems) == (2, 2, [])
    rows_kept(begun, 77)
    assert looked(begun, tiny_model).summaries[0]["rows"] == 77
    assert looked(begun, tiny_model, "b" * 64).summaries[0]["rows"] == 2
    rows_kept(begun, 77)
    with (begun.project_dir / "raw" / "orders.csv").open("a", encoding="utf-8") as file:
        file.write("leaks,new seal\n")
    again = looked(begun, tiny_model)
    assert (again.summaries[0]["rows"], again.survey["rows"]) == (3, 3)
    (begun.folder / SOURCES).write_text('{"of": "cut o')
    assert looked(begun, tiny_model) == again


def test_sources_with_a_problem_are_told_and_looked_through_again(begun, tiny_model):
    raw = begun.project_dir / "raw" / "orders.csv"
    whole = raw.read_bytes()
    raw.write_text("Something,Else\n1,2\n", encoding="utf-8")
    assert [p.value for p in looked(begun, tiny_model).problems] == ["raw/orders.csv"]
    assert not (begun.folder / SOURCES).exists()
    raw.write_bytes(whole)
    assert looked(begun, tiny_model).problems == []


def test_a_look_without_a_model_counts_records_and_no_tokens(begun):
    found = look(begun.project_dir, frozen_spec(begun), None)
    assert (found.survey["rows"], found.survey["mean_tokens"]) == (2, None)
