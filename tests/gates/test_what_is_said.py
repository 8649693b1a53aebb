"""What is said and recorded around a gate is true: who typed it, which run it is, what can still be done."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flows.cli.output import _columns
from flows.ledgers import ledger_of_run
from flows.pinning import pin_policy
from flows.state import fold
from flows.tokens import account
from specs.errors import PolicyRefused
from specs.events import DecisionRecorded
from specs.loading import load_project
from tests.support import light_run
from tests.support.cli import called


@pytest.fixture
def light():
    with light_run.installed():
        yield


def decisions(workspace):
    payloads = [event.read() for event in ledger_of_run(workspace).events(workspace.run)]
    return [p.decision for p in payloads if isinstance(p, DecisionRecorded)]


def test_a_decision_that_somebody_typed_records_the_account_of_the_system(light, tmp_path: Path):
    workspace = light_run.begin(light_run.make_project(tmp_path / "p"))
    light_run.passage(workspace)
    light_run.decide(workspace)
    assert [d.account for d in decisions(workspace)] == [account()]


def test_the_same_run_id_in_a_copy_of_a_project_is_another_run(light, tmp_path: Path):
    """What was decided in one cannot be carried into the other: every gate shows another digest."""
    light_run.make_project(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shown = []
    for name in ("a", "b"):
        workspace = light_run.begin(tmp_path / name)
        light_run.passage(workspace)
        shown.append(fold(ledger_of_run(workspace).events("r1")).gate.digest)
    assert shown[0] != shown[1]


def test_a_run_that_was_copied_while_it_waits_shows_other_gates_from_then_on(light, tmp_path: Path):
    workspace = light_run.begin(light_run.make_project(tmp_path / "a"))
    light_run.passage(workspace)
    workspace.project_dir.rename(tmp_path / "b")
    shutil.copytree(tmp_path / "b", tmp_path / "a")
    shown = []
    for name in ("a", "b"):
        copy = light_run.Workspace(tmp_path / name, "r1")
        light_run.decide(copy)
        light_run.passage(copy)
        shown.append(fold(ledger_of_run(copy).events("r1")).gate)
    assert shown[0].name == shown[1].name == "dry_run"
    assert shown[0].digest != shown[1].digest


def test_a_project_that_is_renamed_and_moved_keeps_its_pins(light, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("GATEWRIGHT_HOME", str(tmp_path / "home"))
    project = light_run.make_project(tmp_path / "a")
    loaded = load_project(project)
    pin_policy(loaded.spec.project, loaded.folder, loaded.spec.policy)
    assert light_run.complete(project).ending == "finished"
    moved = project.rename(tmp_path / "b")
    spec = moved / "project.yaml"
    spec.write_text(
        spec.read_text().replace("project: light", "project: heavy") + "policy: {approvers: [{id: mallory}]}\n"
    )
    with pytest.raises(PolicyRefused, match="pinned"):
        light_run.begin(moved, "r2")


def test_forgetting_what_an_open_gate_shows_is_warned_of_and_status_says_the_way_out(light, tmp_path: Path):
    workspace = light_run.begin(light_run.make_project(tmp_path / "p"))
    light_run.passage(workspace)
    light_run.decide(workspace)
    light_run.passage(workspace)
    before = called("status", "--json", cwd=workspace.project_dir).json
    assert before["open_gates"][0]["missing"] == []
    forget = ("forget", "--path", "01-data/001", "--as", "me", "-m", "asked")
    looked = called(*forget, cwd=workspace.project_dir)
    assert "warning, if you do: gate dry_run round 1" in looked.err
    done = called(*forget, "--yes", cwd=workspace.project_dir)
    way_out = "gatewright rework r1 --stage data --as WHO"
    assert way_out in done.err
    told = called("status", cwd=workspace.project_dir)
    assert way_out in told.out
    assert "waits for me" not in told.out
    assert way_out in called("gates", cwd=workspace.project_dir).out
    refused = called("approve", "--as", "me", "--yes", cwd=workspace.project_dir)
    assert refused.code == 6
    assert way_out in refused.err
    back = called("rework", "--stage", "data", "--as", "me", "-m", "anew", "--yes", cwd=workspace.project_dir)
    assert back.code == 0, back.err


def test_what_gc_deletes_is_a_setting_of_the_spec(tmp_path: Path):
    project = light_run.make_project(tmp_path / "p", more="retention: {older_than: 0d}\n")
    left = project / "ungated" / "x"
    left.mkdir(parents=True)
    (left / "f").write_text("x")
    found = called("gc", "--json", cwd=project).json
    assert [c["path"] for c in found["candidates"]] == ["ungated/x"]
    assert called("gc", "--older-than", "7d", "--json", cwd=project).json["candidates"] == []
    spec = project / "project.yaml"
    spec.write_text(spec.read_text().replace("older_than: 0d", "older_than: soon"))
    assert called("check", cwd=project).code == 2


@pytest.mark.parametrize(("given", "width"), [("90", 90), ("", 120), ("wide", 120), ("3", 120), ("٩٠", 120)])
def test_without_a_terminal_the_width_is_what_columns_says(monkeypatch, given, width):
    monkeypatch.setenv("COLUMNS", given)
    assert _columns() == width
