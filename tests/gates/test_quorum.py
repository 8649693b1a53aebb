"""Several people approve together; an edit is confirmed by others; time denies. Real ledger, real files, real audit."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from flows.audit import show, verify
from flows.audit.history import read_history
from flows.closing import lost_files
from flows.expiring import expire_if_due
from flows.gatefiles import gate_path, load_proposal, proposal_path
from flows.ledger import Ledger
from flows.releasing import decisions_of
from flows.reviewing import last_round
from flows.standing import waiting
from flows.state import Rejected, RunStage, Wait
from flows.workspace import Workspace
from specs.errors import DecisionRefused, GuardRefused, PolicyRefused, Refused
from specs.policy import Approver, GateSettings, Policy
from tests.support.run_maker import RunMaker

PEOPLE = [Approver(id=name, may_override=True) for name in ("li", "wang", "zhao")]


def team(**more: Any) -> Policy:
    return Policy(**{"solo": False, "approvers": PEOPLE, "quorum": 2, **more})


def at_data(folder: Path, policy: Policy | None = None) -> RunMaker:
    return RunMaker(folder, policy=policy or team()).start().until_gate("data")


def faults(maker: RunMaker) -> list[str]:
    report = verify(maker.ledger, "r1", maker.run_dir)
    parts = (report.integrity, report.completeness, report.authority)
    return [f"{step.check}: {step.detail}" for part in parts for step in part.steps if not step.ok]


def stands(maker: RunMaker) -> tuple[tuple[str, ...], tuple[str, ...]]:
    gate = maker.state.gate
    assert gate is not None
    found = waiting(maker.policy, gate)
    return found.approved_by, found.waits_for


def refused(kind: type[Refused], maker: RunMaker, *choice: str, **more: Any) -> str:
    before = len(maker.ledger.events("r1"))
    with pytest.raises(kind) as caught:
        maker.decide(*choice, **more)
    assert caught.value.exit_code == 6
    assert len(maker.ledger.events("r1")) == before
    return caught.value.message


def test_the_gate_opens_with_the_last_approval_of_the_quorum(tmp_path: Path):
    maker = at_data(tmp_path)
    first = maker.decide(actor="li")
    assert (first.kind, first.payload["approved_by"], first.payload["quorum"]) == ("approval.recorded", ["li"], 2)
    assert isinstance(maker.next, Wait)
    assert stands(maker) == (("li",), ("wang", "zhao"))
    assert "li approved gate data round 1 already" in refused(DecisionRefused, maker, actor="li")
    second = maker.decide(actor="zhao")
    assert (second.kind, second.payload["approved_by"]) == ("decision.recorded", ["li", "zhao"])
    assert isinstance(maker.next, RunStage)
    assert faults(maker) == []


@pytest.mark.parametrize("choice", ["reject", "rework"])
def test_one_person_closes_the_gate_against_any_number_of_approvals(tmp_path: Path, choice: str):
    maker = at_data(tmp_path)
    maker.decide(actor="li")
    assert maker.decide(choice, actor="li").kind == "decision.recorded"
    assert not isinstance(maker.next, Wait)
    assert faults(maker) == []


def test_an_edit_is_a_new_content_that_the_others_confirm_by_its_digest(tmp_path: Path):
    maker = at_data(tmp_path)
    shown = maker.shown
    maker.decide(actor="zhao")
    edit = maker.decide(actor="li", edits={"seed": "7"}, comment="as last time")
    assert edit.kind == "gate.amended"
    assert edit.payload["decision"]["digest"] == shown
    assert maker.shown == edit.payload["digest"] != shown
    assert stands(maker) == ((), ("wang", "zhao"))  # zhao approved something else, li does not count
    document = json.loads(gate_path(maker.run_dir, "data", 1, maker.shown).read_bytes())
    assert (document["amends"], document["edited_by"]) == (shown, ["li"])
    message = refused(DecisionRefused, maker, actor="wang")
    assert "li edited what gate data round 1 showed (seed = 7)" in message
    assert "you decided on" in refused(DecisionRefused, maker, actor="wang", expected_digest=shown)
    assert "does not count as its reviewer" in refused(PolicyRefused, maker, actor="li", expected_digest=maker.shown)
    maker.decide(actor="wang", expected_digest=maker.shown[:12])
    maker.decide(actor="zhao", expected_digest=maker.shown)
    signed = [(d.actor, d.digest) for d in decisions_of(maker.ledger, maker.state)]
    assert signed == [("wang", maker.shown), ("zhao", maker.shown)]
    story = show(read_history(maker.ledger, "r1", maker.run_dir))
    for words in ("li set seed = 7 at gate", "edited by li at", "approved by wang at", "approved by zhao at"):
        assert words in story
    step = maker.next
    assert isinstance(step, RunStage)
    proposal = load_proposal(maker.run_dir, step.proposal)
    assert (proposal.parameters["seed"], proposal.edited_by) == (7, "li")
    assert faults(maker.until_gate("dry_run", by=("wang", "zhao"))) == []


def test_an_edit_that_too_few_others_could_confirm_is_refused_at_once(tmp_path: Path):
    maker = at_data(tmp_path)
    maker.decide(actor="li", edits={"seed": "7"})
    message = refused(PolicyRefused, maker, actor="wang", edits={"seed": "8"}, expected_digest=maker.shown)
    assert "nobody could confirm an edit of wang" in message


def test_a_rework_after_an_edit_starts_from_what_was_edited(tmp_path: Path):
    maker = at_data(tmp_path, team(quorum=1))
    edited = maker.decide(actor="li", edits={"seed": "7"}).payload["decision"]["edited_proposal"]
    assert lost_files(Workspace(maker.project_dir, "r1"), maker.state) == []
    maker.decide("rework", actor="wang", expected_digest=maker.shown)
    assert last_round(maker.state, "data", 2) == edited
    maker.until_gate("data")
    assert faults(maker) == []


def test_a_second_edit_builds_on_the_first_and_neither_editor_counts(tmp_path: Path):
    maker = at_data(tmp_path, team(quorum=1))
    maker.decide(actor="li", edits={"seed": "7"})
    maker.decide(actor="wang", edits={"eval_share": "0.3"}, expected_digest=maker.shown)
    assert stands(maker) == ((), ("zhao",))
    maker.decide(actor="zhao", expected_digest=maker.shown)
    step = maker.next
    assert isinstance(step, RunStage)
    parameters = load_proposal(maker.run_dir, step.proposal).parameters
    assert (parameters["seed"], parameters["eval_share"]) == (7, 0.3)
    assert faults(maker) == []


def test_the_guard_has_the_last_word_on_an_edit_that_others_would_confirm(tmp_path: Path):
    maker = at_data(tmp_path)

    def guard(proposal: Any) -> None:
        raise GuardRefused("seed 7 is above the cap", "stay below it")

    refused(GuardRefused, maker, actor="li", edits={"seed": "7"}, guard=guard)
    assert isinstance(maker.next, Wait)


def test_what_an_edit_shows_cannot_be_changed_before_it_is_confirmed(tmp_path: Path):
    maker = at_data(tmp_path, team(quorum=1))
    maker.decide(actor="li", edits={"seed": "7"})
    gate = maker.state.gate
    assert gate is not None
    for path in (
        gate_path(maker.run_dir, "data", 1, gate.digest),
        proposal_path(maker.run_dir, str(gate.edited_proposal)),
    ):
        data = path.read_bytes()
        path.write_bytes(data.replace(b"7", b"8"))
        assert "was changed" in refused(DecisionRefused, maker, actor="wang", expected_digest=maker.shown)
        path.write_bytes(data)
    maker.decide(actor="wang", expected_digest=maker.shown)


def test_only_a_gates_own_reviewers_decide_there(tmp_path: Path):
    policy = team(quorum=1, gates={"data": GateSettings(reviewers=["wang"])})
    maker = at_data(tmp_path, policy)
    for choice in ("approve", "reject", "rework"):
        assert "li may not decide at gate data" in refused(PolicyRefused, maker, choice, actor="li")
    maker.decide(actor="wang")


def test_reworks_that_lead_to_a_gate_are_limited(tmp_path: Path):
    maker = at_data(tmp_path, team(quorum=1, max_rework_rounds=2))
    for _ in range(2):
        maker.decide("rework", actor="li")
        maker.until_gate("data")
    assert "2 reworks led here already" in refused(PolicyRefused, maker, "rework", actor="li")
    maker.decide(actor="li")
    assert faults(maker) == []


def test_a_gate_that_ran_out_is_denied_and_the_run_ends(tmp_path: Path):
    maker = at_data(tmp_path, team(expires_after="1h"))
    maker.decide(actor="li")
    assert expire_if_due(maker.ledger, "r1", maker.run_dir) is None
    maker.clock.at += timedelta(hours=1)
    with pytest.raises(DecisionRefused, match="gate data round 1 expired at") as caught:
        maker.decide(actor="wang")
    assert "time denied it" in caught.value.message
    assert [event.kind for event in maker.ledger.events("r1")][-1] == "gate.expired"
    assert isinstance(maker.next, Rejected)
    assert maker.state.state == "rejected"
    assert "expired at" in refused(DecisionRefused, maker, "reject", actor="wang")
    maker.work()
    assert maker.state.terminal
    assert faults(maker) == []


def test_time_alone_denies_when_the_run_is_entered(tmp_path: Path):
    maker = at_data(tmp_path, team(expires_after="1h"))
    maker.clock.at += timedelta(hours=2)
    assert expire_if_due(maker.ledger, "r1", maker.run_dir) is not None
    assert expire_if_due(maker.ledger, "r1", maker.run_dir) is None
    assert faults(maker) == []


def test_of_approvals_edits_a_reject_and_expiry_at_once_exactly_one_closes_the_gate(tmp_path: Path):
    maker = at_data(tmp_path, team(expires_after="1h"))
    maker.clock.at += timedelta(minutes=59, seconds=30)  # the clock steps a second at every look: some come too late
    barrier = threading.Barrier(6)
    said: list[str] = []

    def person(who: str, choice: str, edits: dict[str, str] | None) -> None:
        ledger = Ledger.open(maker.project_dir / ".gatewright" / "gatewright.db", clock=maker.clock)
        other = RunMaker.__new__(RunMaker)
        other.__dict__.update({**maker.__dict__, "ledger": ledger})
        barrier.wait()
        try:
            said.append(other.decide(choice, actor=who, edits=edits).kind)
        except Refused as error:
            said.append(f"refused: {error.message}")
        finally:
            ledger.close()

    asks = [("li", "approve", None), ("wang", "approve", None), ("zhao", "approve", None), ("li", "reject", None),
            ("wang", "rework", None), ("zhao", "approve", {"seed": "7"})]  # fmt: skip
    threads = [threading.Thread(target=person, args=ask) for ask in asks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    closing = [e for e in maker.ledger.events("r1") if e.kind in ("decision.recorded", "gate.expired")]
    assert len(closing) <= 1
    assert len(said) == 6
    assert said.count("decision.recorded") == sum(e.kind == "decision.recorded" for e in closing)
    assert faults(maker) == []
