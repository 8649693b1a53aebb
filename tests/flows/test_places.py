"""Where a run is recorded: relative ledgers, changed ledgers, lost folders, several projects. No Prefect, no torch."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flows.audit import verify
from flows.ledger import Ledger
from flows.ledger.lease import Owner, process_start, this_process
from flows.ledgers import ledger_of_run
from flows.workspace import Workspace, ledger_url
from specs.loading import load_project
from tests.support import light_run
from tests.support.cli import called as gatewright

pytestmark = pytest.mark.usefixtures("light_stages")


def at_first_gate(folder: Path, run: str = "r1", **more: str) -> Workspace:
    """A project whose run waits at its first gate."""
    workspace = light_run.begin(light_run.make_project(folder, **more), run)
    assert light_run.passage(workspace).ending == "waiting"
    return workspace


@pytest.mark.parametrize("ledger", ["sqlite:///../shared.db", "team/ledger.db"])
def test_a_relative_ledger_lies_relative_to_the_project_wherever_the_command_is_called(tmp_path, monkeypatch, ledger):
    project = tmp_path / "a" / "p"
    workspace = at_first_gate(project, ledger=ledger)
    place = Path(str(ledger_url(project, load_project(project).spec)).removeprefix("sqlite:///"))
    assert place.is_file()
    assert place.resolve() == (project / ledger.removeprefix("sqlite:///")).resolve()
    for here in (project, tmp_path):
        monkeypatch.chdir(here)
        assert light_run.passage(workspace).ending == "waiting"
        answer = gatewright("status", "--project", project, "--json", cwd=here)
        assert (answer.code, answer.json["state"]) == (0, "waiting")
    assert not list(tmp_path.glob("*.db"))


def test_a_changed_ledger_with_an_open_run_is_refused_with_the_way_out(tmp_path):
    project = tmp_path / "p"
    workspace = at_first_gate(project)
    spec = project / "project.yaml"
    before = spec.read_text()
    spec.write_text(before + "ledger: sqlite:///other.db\n")
    for words in (["status"], ["run", ".", "--run-id", "r2"], ["resume"]):
        answer = gatewright(*words, "--json", cwd=project)
        assert (answer.code, answer.json["error"]["kind"]) == (6, "RunOpen"), words
        assert "r1" in answer.json["error"]["message"]
        assert "no `ledger:` line" in answer.json["error"]["hint"]
    assert not (project / "other.db").exists()
    by_id = gatewright("status", "r1", "--json", cwd=project)
    assert (by_id.code, by_id.json["state"]) == (0, "waiting")
    light_run.decide(workspace, "reject")
    assert light_run.passage(workspace).ending == "rejected"
    assert gatewright("status", "--json", cwd=project).code == 2  # nothing was ever run in the new ledger


def test_a_run_whose_folder_is_gone_can_be_closed_and_the_project_goes_on(tmp_path):
    project = tmp_path / "p"
    workspace = at_first_gate(project)
    shutil.rmtree(workspace.folder)
    assert gatewright("status", "--json", cwd=project).json["state"] == "waiting"
    assert "gate r1.data.1" in gatewright("gates", cwd=project).out
    refused = gatewright("run", ".", "--json", cwd=project)
    assert refused.code == 6
    assert "gatewright close r1" in refused.json["error"]["hint"]
    assert gatewright("close", "r1", "--as", "gatewright", "-m", "x", cwd=project).code == 6
    assert gatewright("close", "r1", "--as", "me", cwd=project).code == 2
    closed = gatewright("close", "r1", "--as", "me", "-m", "the disk died", "--json", cwd=project)
    assert closed.code == 0, closed.err
    assert closed.json["lost"] == ["policy.json", "spec.json"]
    last = Ledger.open(ledger_url(project)).events("r1")[-1]
    assert (last.kind, last.actor, last.payload["reason"]) == ("run.closed", "me", "the disk died")
    assert gatewright("close", "r1", "--as", "me", "-m", "again", cwd=project).code == 6
    assert light_run.begin(project, "r2").run == "r2"


def test_a_run_that_only_fails_can_be_closed_and_its_history_still_verifies(tmp_path, monkeypatch):
    project = tmp_path / "p"
    workspace = at_first_gate(project)
    waiting = gatewright("close", "--as", "me", "-m", "no", "--json", cwd=project)
    assert waiting.code == 6
    assert "reject" in waiting.json["error"]["hint"]
    light_run.decide(workspace)
    monkeypatch.setitem(light_run.HOW, "while_running", lambda context: 1 / 0)
    assert light_run.passage(workspace).ending == "failed"
    stranger = gatewright("close", "--as", "mallory", "-m", "x", "--json", cwd=project)
    assert (stranger.code, stranger.json["error"]["kind"]) == (6, "PolicyRefused")
    assert gatewright("close", "--as", "me", "-m", "this machine is too small", cwd=project).code == 0
    assert gatewright("status", "--json", cwd=project).json["state"] == "rejected"
    assert light_run.passage(workspace).error is not None
    report = verify(ledger_of_run(workspace), "r1", workspace.folder)
    assert report.ok, report


def test_a_process_that_works_is_not_closed_under_its_hands(tmp_path):
    project = tmp_path / "p"
    workspace = at_first_gate(project)
    shutil.rmtree(workspace.folder)
    ledger = Ledger.open(ledger_url(project))
    parent = replace(this_process(), pid=os.getppid(), process_start=process_start(os.getppid()) or "")
    with ledger.take_lease("r1", owner=parent):
        answer = gatewright("close", "r1", "--as", "me", "-m", "x", "--json", cwd=project)
        assert (answer.code, answer.json["error"]["kind"]) == (6, "LeaseHeld")
        assert str(os.getppid()) in answer.json["error"]["message"]


def test_a_silent_holder_elsewhere_is_taken_over_by_resume_with_a_reason(tmp_path):
    project = tmp_path / "p"
    workspace = at_first_gate(project)
    light_run.decide(workspace)
    ledger = ledger_of_run(workspace)
    ledger.take_lease("r1", owner=Owner("returned-machine", "boot", 1, "tick 1"))
    with ledger.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE leases SET seen_at = '2026-01-01T00:00:00.000000Z'")
    held = light_run.passage(workspace)
    assert held.error is not None
    assert "--take-over" in held.error.hint
    assert light_run.passage(workspace, take_over="the rented machine was returned").ending == "waiting"
    taken = [e.payload for e in ledger.events("r1") if e.kind == "lease.taken"][-1]
    assert taken["reason"] == "the rented machine was returned"


def test_gates_and_runs_take_several_projects(tmp_path):
    one, two = (at_first_gate(tmp_path / name, name=name).project_dir for name in ("one", "two"))
    for words in ([one, two], ["--project", one, "--project", two], [one, "--project", two, one]):
        gates = gatewright("gates", *words, "--json", cwd=tmp_path).json["gates"]
        assert [g["project"] for g in gates] == ["one", "two"]
        runs = gatewright("runs", *words, "--json", cwd=tmp_path).json["runs"]
        assert [r["project"] for r in runs] == ["one", "two"]
    here = gatewright("gates", "--json", cwd=two).json["gates"]
    assert [g["project"] for g in here] == ["two"]
    light_run.decide(Workspace(one, "r1"))
    assert [g["project"] for g in gatewright("gates", one, two, "--json", cwd=tmp_path).json["gates"]] == ["two"]


def test_a_moved_project_with_a_shared_ledger_keeps_its_runs(tmp_path):
    project = tmp_path / "here" / "p"
    at_first_gate(project, ledger=f"sqlite:///{tmp_path / 'shared.db'}")
    at_first_gate(tmp_path / "q", "q1", name="other", ledger=f"sqlite:///{tmp_path / 'shared.db'}")
    moved = tmp_path / "there" / "p"
    moved.parent.mkdir()
    project.rename(moved)
    answer = gatewright("status", "--json", cwd=moved)
    assert (answer.code, answer.json["run"], answer.json["project"]) == (0, "r1", "light")
