"""Removing a person's data while a run is open: nothing outside the run is touched, and the run has a way on."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.audit import verify
from flows.ledgers import ledger_of_run
from flows.removal import remove
from flows.state import fold
from flows.workspace import Workspace
from specs.errors import DecisionRefused, InputError
from tests.support import light_run

pytestmark = pytest.mark.usefixtures("light_stages")


@pytest.fixture
def at_dry_run(tmp_path: Path) -> Workspace:
    workspace = light_run.begin(light_run.make_project(tmp_path / "p"))
    light_run.passage(workspace)
    light_run.decide(workspace)
    assert light_run.passage(workspace).ending == "waiting"
    return workspace


def forget(workspace: Workspace, path: str) -> None:
    remove(workspace, ledger_of_run(workspace), "light", [path], "me", "a person asked")


def test_a_report_that_was_removed_is_approved_by_nobody_and_made_anew(at_dry_run: Workspace):
    forget(at_dry_run, "01-data/001/report.html")
    with pytest.raises(DecisionRefused, match=r"removed on request since it opened: 01-data/001/report\.html"):
        light_run.decide(at_dry_run)
    light_run.decide(at_dry_run, "rework", rework_stage="data")
    assert light_run.passage(at_dry_run).ending == "waiting"
    light_run.decide(at_dry_run)
    assert light_run.passage(at_dry_run).ending == "waiting"
    assert (at_dry_run.folder / "01-data/002/report.html").is_file()
    assert verify(ledger_of_run(at_dry_run), "r1", at_dry_run.folder).ok


def test_a_report_that_was_only_deleted_allows_neither(at_dry_run: Workspace):
    (at_dry_run.folder / "01-data/001/report.html").unlink()
    for choice in ("approve", "rework"):
        with pytest.raises(DecisionRefused, match="was changed since it opened"):
            light_run.decide(at_dry_run, choice)
    light_run.decide(at_dry_run, "reject")


def test_a_stage_whose_input_was_removed_fails_in_plain_words_and_can_be_made_anew(at_dry_run: Workspace):
    forget(at_dry_run, "01-data/001/artifacts")
    light_run.decide(at_dry_run)
    session = light_run.passage(at_dry_run)
    assert session.error is not None
    assert "artifacts/more.txt of data is missing" in session.error.message
    assert "gatewright rework --stage data" in session.error.hint
    assert light_run.passage(at_dry_run, anew=True).ending == "waiting"
    light_run.decide(at_dry_run, "rework", rework_stage="data")
    assert light_run.passage(at_dry_run).ending == "waiting"
    light_run.decide(at_dry_run)
    assert light_run.passage(at_dry_run).ending == "waiting"
    gate = fold(ledger_of_run(at_dry_run).events("r1")).gate
    assert gate is not None
    assert gate.name == "dry_run"
    assert verify(ledger_of_run(at_dry_run), "r1", at_dry_run.folder).ok


def test_what_lies_behind_a_link_is_not_the_runs_to_remove(at_dry_run: Workspace, tmp_path: Path):
    outside = tmp_path / "elsewhere" / "note.txt"
    outside.parent.mkdir()
    outside.write_text("of another project")
    (at_dry_run.folder / "logs").symlink_to(outside.parent)
    (at_dry_run.folder / "note.txt").symlink_to(outside)
    for path in ("logs/note.txt", "logs", "note.txt"):
        with pytest.raises(InputError, match="is a link or lies behind one"):
            forget(at_dry_run, path)
    assert outside.read_text() == "of another project"


def test_the_record_cannot_be_removed_by_another_spelling_of_its_path(at_dry_run: Workspace):
    gate = "gates/02-dry_run/001/gate.json"
    proposal = next((at_dry_run.folder / "proposals").iterdir()).name
    for path in (f"./{gate}", f"gates//02-dry_run/001/{gate[-9:]}", f"./proposals/{proposal}", "./proposals"):
        with pytest.raises(InputError, match=r"part of the record|no file is named"):
            forget(at_dry_run, path)
    assert (at_dry_run.folder / "proposals" / proposal).is_file()
