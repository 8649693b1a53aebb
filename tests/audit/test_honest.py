"""An honest history passes every step, however it went."""

from __future__ import annotations

import json
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from flows.audit import AuditReport, export, verify, verify_bundle
from flows.gatefiles import attempt_folder, load_proposal
from flows.standing import waiting
from flows.state import Done, Rejected, RunStage, Wait, fold
from specs.canonical import digest
from specs.events import AttemptAbandoned, AttemptReserved, RunClosed, RunStopped
from specs.policy import Approver, Policy
from tests.support.run_maker import SHA, RunMaker


def faults(report: AuditReport) -> list[str]:
    """What an audit found wrong."""
    return [f"{n} {s.n} {s.check}: {s.detail}" for n, part in report.parts.items() for s in part.steps if not s.ok]


class Story:
    """Draws what happens next in a run and lets it happen."""

    def __init__(self, maker: RunMaker, data: st.DataObject) -> None:
        self.maker, self.data = maker, data

    def tell(self, length: int) -> None:
        for _ in range(length):
            step = self.maker.next
            if isinstance(step, Done | Rejected) and step.recorded:
                return
            if isinstance(step, Wait):
                self.person(step)
            elif isinstance(step, RunStage):
                self.stage(step)
            else:
                self.maker.work()

    def person(self, step: Wait) -> None:
        choice = self.data.draw(st.sampled_from(["approve"] * 6 + ["edit", "rework", "back", "reject", "stop"]))
        how = self.data.draw(
            st.sampled_from(["terminal", "unauthenticated"] if self.maker.policy.solo else ["terminal"])
        )
        gate = self.maker.state.gate
        assert gate is not None
        others = waiting(self.maker.policy, gate).waits_for  # whoever approved or edited does not count again
        who = self.data.draw(st.sampled_from(others or ("me",)))
        said = {"actor": who, "authentication": how, "expected_digest": gate.digest}
        editable = step.gate in ("data", "evaluate") and len(others) > self.maker.policy.quorum
        if choice == "stop":
            self.maker.ledger.append("r1", RunStopped(stage=step.gate, reason="asked"), "gatewright", self.maker.fence)
        elif choice == "edit" and editable:
            self.maker.decide(edits={"seed": 3}, override=step.blocked, **said)
        elif choice in ("approve", "edit") and others:
            self.maker.decide(override=step.blocked, **said)
        elif choice == "reject":
            self.maker.decide("reject", **said)
        else:
            self.maker.decide("rework", rework_stage="data" if choice == "back" else None, **said)

    def stage(self, step: RunStage) -> None:
        what = self.data.draw(st.sampled_from(["good"] * 5 + ["bad", "fails", "dies", "dies and is set aside"]))
        if what.startswith("dies"):
            reserved = AttemptReserved(stage=step.stage, attempt=step.attempt, parameters=self.parameters(step))
            self.maker.ledger.append("r1", reserved, "gatewright", self.maker.fence)
            folder = attempt_folder(self.maker.run_dir, step.stage, step.attempt)
            partial = folder.with_name(folder.name + ".partial")
            partial.mkdir(parents=True, exist_ok=True)
            if what != "dies":
                left = AttemptAbandoned(stage=step.stage, attempt=step.attempt, reason="partial")
                self.maker.ledger.append("r1", left, "gatewright", self.maker.fence)
            self.maker.lease = self.maker.ledger.take_lease("r1")
        else:
            self.maker.work(loss=3.0 if what == "bad" else 0.5, fail="boom" if what == "fails" else "")

    def parameters(self, step: RunStage) -> str:
        return digest(load_proposal(self.maker.run_dir, step.proposal).parameters)


@given(data=st.data(), solo=st.booleans(), length=st.integers(1, 40))
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_an_honest_history_raises_no_alarm_at_any_length(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, solo: bool, length: int
):
    raises_no_alarm(tmp_path_factory, data, solo, length)


@pytest.mark.slow
@given(data=st.data(), solo=st.booleans(), length=st.integers(1, 120))
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_two_hundred_honest_histories_raise_no_alarm(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, solo: bool, length: int
):
    raises_no_alarm(tmp_path_factory, data, solo, length)


def raises_no_alarm(factory: pytest.TempPathFactory, data: st.DataObject, solo: bool, length: int) -> None:
    """A history of this length, told at random, verifies in every step."""
    people = [Approver(id=name, may_override=True) for name in ("me", "you", "they")]
    quorum = 1 if solo else data.draw(st.integers(1, 2))
    maker = RunMaker(factory.mktemp("honest"), policy=Policy(solo=solo, quorum=quorum, approvers=people)).start()
    Story(maker, data).tell(length)
    row, state = maker.ledger.run("r1"), fold(maker.ledger.events("r1"))
    assert (row.state, row.stage) == (state.state, state.stage)
    assert faults(verify(maker.ledger, "r1", maker.run_dir)) == []
    bundle = maker.project_dir / "run.zip"
    export(maker.ledger, "r1", maker.run_dir, bundle, artifacts=data.draw(st.booleans()))
    assert faults(verify_bundle(bundle)) == []
    maker.ledger.close()


def test_a_run_that_was_closed_in_the_middle_raises_no_alarm(tmp_path: Path):
    maker = RunMaker(tmp_path).start().until_gate("dry_run")
    maker.decide()
    step = maker.next
    assert isinstance(step, RunStage)
    parameters = digest(load_proposal(maker.run_dir, step.proposal).parameters)
    reserved = AttemptReserved(stage=step.stage, attempt=step.attempt, parameters=parameters)
    maker.ledger.append("r1", reserved, "gatewright", maker.fence)
    maker.ledger.append("r1", RunClosed(reason="the machine is gone"), "me", maker.fence)
    assert faults(verify(maker.ledger, "r1", maker.run_dir)) == []


def test_the_report_is_that_of_the_contract(tmp_path: Path):
    maker = RunMaker(tmp_path).start().to_the_end()
    report = json.loads(verify(maker.ledger, "r1", maker.run_dir).model_dump_json())
    assert list(report) == ["integrity", "completeness", "authority", "ok"]
    assert report["ok"] is True
    for part in ("integrity", "completeness", "authority"):
        assert list(report[part]) == ["ok", "steps"]
        assert [step["n"] for step in report[part]["steps"]] == list(range(1, len(report[part]["steps"]) + 1))
        assert all(list(step) == ["n", "check", "ok", "verified", "detail"] for step in report[part]["steps"])


def test_what_cannot_be_verified_is_said(tmp_path: Path):
    maker = RunMaker(tmp_path).start().until_gate("data")
    maker.decide(authentication="unauthenticated")
    report = verify(maker.ledger, "r1", maker.run_dir)
    text = report.model_dump_json()
    assert report.ok
    assert "self-consistent; no anchor was given" in report.integrity.steps[-1].detail
    assert "not verified: no anchor was given" in report.completeness.steps[-1].detail
    assert "1 of 1 are claims: who typed the name cannot be verified" in report.authority.steps[-2].detail
    assert [s.verified for s in (report.completeness.steps[-1], report.authority.steps[-1])] == ["none", "none"]
    assert "only an anchor could show a cut tail" in text
    assert "untampered" not in text
    assert "solo: every decision is self-approved" in report.authority.steps[0].detail
    assert SHA not in text
