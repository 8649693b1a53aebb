"""A rehearsal goes through the same gates, releases nothing, and is what a training on several devices rests on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import flows.rehearsing
from flows.audit import verify
from flows.ledgers import ledger_of_run
from flows.rehearsing import devices_of, passed_rehearsal
from flows.releasing import release_facts
from flows.starting import start_run
from flows.state import fold, status_document
from flows.workspace import Workspace, frozen_spec
from specs.canonical import canonical_bytes
from specs.errors import GuardRefused, InputError, Refused, RunOpen
from specs.events import GateOpened, RunFinished
from specs.files import write_bytes
from specs.stages import Quiet, StageContext
from tests.support import light_run
from tests.support.cli import called

pytestmark = pytest.mark.usefixtures("light_stages")

FINGERPRINT = "f" * 64


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def settings(context: StageContext) -> None:
        if context.stage in ("stress_test", "train"):
            write_bytes(context.artifacts / "settings.json", canonical_bytes({"fingerprint": FINGERPRINT}))

    monkeypatch.setitem(light_run.HOW, "while_running", settings)
    monkeypatch.setitem(light_run.HOW, "workers", False)
    return light_run.make_project(tmp_path / "light")


def rehearse(project: Path, run: str = "small") -> Workspace:
    workspace = start_run(project, run, 0.01)
    session = light_run.complete(project, run)
    assert session.ending == "finished", session.error
    return workspace


def finished(workspace: Workspace) -> RunFinished:
    last = ledger_of_run(workspace).events(workspace.run)[-1].read()
    assert isinstance(last, RunFinished)
    return last


def test_a_rehearsal_is_marked_everywhere_and_ends_without_a_release_gate(project):
    workspace = rehearse(project)
    ledger = ledger_of_run(workspace)
    state = fold(ledger.events("small"))
    assert frozen_spec(workspace).rehearsal == 0.01
    assert status_document(state, "small", "light")["rehearsal"] == 0.01
    gates = [p.gate for e in ledger.events("small") if isinstance(p := e.read(), GateOpened)]
    assert gates == ["data", "dry_run", "stress_test", "train", "evaluate"]
    assert state.release is None
    assert not workspace.release.exists()
    assert (finished(workspace).rehearsed, finished(workspace).passed) == (FINGERPRINT, True)
    assert passed_rehearsal(ledger, "light", FINGERPRINT) == "small"
    assert passed_rehearsal(ledger, "light", "0" * 64) is None
    report = verify(ledger, "small", workspace.folder)
    assert report.ok
    with pytest.raises(Refused, match="nothing of a rehearsal is released"):
        release_facts(workspace, ledger, Quiet())


def test_a_rehearsal_with_a_blocking_criterion_that_was_overridden_did_not_pass(project, monkeypatch):
    monkeypatch.setattr(light_run, "_passing", lambda spec, stage: {"resumes": 0.0, **passing(spec, stage)})
    workspace = start_run(project, "small", 0.01)
    while light_run.passage(workspace).ending in ("waiting", "waiting_blocked"):
        gate = fold(ledger_of_run(workspace).events("small")).gate
        assert gate is not None
        light_run.decide(workspace, override=gate.blocked)
    assert finished(workspace).passed is False
    assert passed_rehearsal(ledger_of_run(workspace), "light", FINGERPRINT) is None
    assert verify(ledger_of_run(workspace), "small", workspace.folder).ok


def passing(spec: Any, stage: str) -> dict[str, float]:
    shift = {"<": -1.0, "<=": 0.0, ">": 1.0, ">=": 0.0, "==": 0.0, "!=": 1.0}
    return {c.metric: c.bound + shift[c.op] for c in spec.criteria(stage) if c.metric != "resumes"}


def at_train(project: Path, run: str) -> Workspace:
    workspace = start_run(project, run)
    while light_run.passage(workspace).ending == "waiting":
        gate = fold(ledger_of_run(workspace).events(run)).gate
        assert gate is not None
        if gate.name == "train":
            return workspace
        light_run.decide(workspace)
    raise AssertionError("the run did not come to its train gate")


def test_training_on_several_devices_needs_a_passed_rehearsal_which_may_begin_while_the_run_waits(project, monkeypatch):
    assert [devices_of(p) for p in ({}, {"training": {}}, {"training": {"ranks": 2}})] == [1, 1, 2]
    monkeypatch.setattr(flows.rehearsing, "devices_of", lambda parameters: 2)
    workspace = at_train(project, "real")
    with pytest.raises(GuardRefused, match="a training in 2 processes needs a passed rehearsal") as refused:
        light_run.decide(workspace)
    assert "--rehearse 0.01" in refused.value.hint
    rehearse(project)
    document = light_run.decide(workspace)
    assert (document["choice"], document["rehearsal"]) == ("approve", "small")


def test_criteria_that_were_edited_after_a_rehearsal_are_told_to_whoever_approves(project, monkeypatch):
    monkeypatch.setattr(flows.rehearsing, "devices_of", lambda parameters: 2)
    rehearse(project)
    spec = project / "project.yaml"
    more = "acceptance:\n  evaluate: [{metric: ended_share, op: '>=', bound: 0.25}]\n"
    before = spec.read_text(encoding="utf-8")
    assert "acceptance:" not in before
    spec.write_text(before + more, encoding="utf-8")
    shown = called("review", "real", "--json", cwd=at_train(project, "real").project_dir).json
    decided = light_run.decide(Workspace(project, "real"))
    assert decided["rehearsal"] == "small"
    for said in (shown["rehearsed_otherwise"], decided["rehearsed_otherwise"]):
        assert "evaluate: ended_share >= 0.25, rehearsed" in said
        assert "training_hours" not in said, "what a rehearsal loosens by itself is no difference"


def test_nothing_is_said_of_a_rehearsal_under_the_same_criteria(project, monkeypatch):
    monkeypatch.setattr(flows.rehearsing, "devices_of", lambda parameters: 2)
    rehearse(project)
    assert light_run.decide(at_train(project, "real"))["rehearsed_otherwise"] == ""


def test_one_device_needs_none(project):
    assert light_run.decide(at_train(project, "real"))["rehearsal"] == ""


def test_a_share_that_is_none_and_a_second_rehearsal_are_refused(project):
    with pytest.raises(InputError, match="1 is not a share of the samples"):
        start_run(project, "small", 1.0)
    start_run(project, "small", 0.01)
    with pytest.raises(RunOpen, match="has an open run: small"):
        start_run(project, "other", 0.01)
    with pytest.raises(RunOpen, match="has an open run: small"):
        start_run(project, "real")


def test_an_ending_that_says_something_else_than_the_verdicts_is_found(project):
    workspace = rehearse(project)
    path = workspace.attempt("train", 1) / "artifacts" / "settings.json"
    path.write_bytes(json.dumps({"fingerprint": "0" * 64}).encode())
    report = verify(ledger_of_run(workspace), "small", workspace.folder)
    assert any("another configuration than was trained" in step.detail for step in report.completeness.steps)
