"""The next step is a function of the events: whatever happens in whatever order, nothing is done or asked twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flows.folding import advance
from flows.ledger.chain import genesis, opened, seal
from flows.state import (
    RELEASE,
    Done,
    Feedback,
    OpenGate,
    Propose,
    RecordVerdicts,
    Rejected,
    Release,
    RunStage,
    RunState,
    Wait,
    fold,
    next_step,
    status_document,
    superseded_by,
)
from specs.canonical import sha256_bytes
from specs.criteria import Verdict
from specs.decisions import Decision
from specs.events import (
    AttemptAbandoned,
    AttemptFailed,
    AttemptPublished,
    AttemptReserved,
    CheckpointSaved,
    DecisionRecorded,
    Event,
    GateOpened,
    LeaseTaken,
    Payload,
    PrefectAttached,
    ProposalMade,
    ReleasePublished,
    RunCreated,
    RunFinished,
    RunRejected,
    RunStopped,
    VerdictsRecorded,
)

SHA = "a" * 64
STAGES = ("data", "train", "evaluate")


def verdict(passed: bool) -> Verdict:
    return Verdict(metric="loss", value=0.5 if passed else 2, op="<", bound=1, blocking=True, passed=passed)


def proposal_of(gate: str, round_: int) -> str:
    return sha256_bytes(f"{gate}{round_}".encode())


class History:
    """Events of one run, chained as the ledger chains them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._folded = (0, RunState())
        self.add(
            RunCreated(project="p", spec=SHA, policy=SHA, environment=SHA, code="1", stages=list(STAGES), solo=True)
        )

    def add(self, *payloads: Payload) -> None:
        for payload in payloads:
            number = len(self.events) + 1
            before = self.events[-1].hash if self.events else genesis("r")
            at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
            row = seal("r", number, payload.kind, "someone", at, payload.model_dump(mode="json"), before)
            self.events.append(opened(row))

    @property
    def state(self) -> RunState:
        if self._folded[0] != len(self.events):
            self._folded = (len(self.events), fold(self.events))
        return self._folded[1]

    @property
    def next(self) -> Any:
        return next_step(self.state)

    def decide(self, choice: str, stage: str | None = None, edited: bool = False, comment: str = "c") -> Decision:
        step = self.next
        assert isinstance(step, Wait)
        decision = Decision(
            run="r",
            gate=step.gate,
            round=step.round,
            digest=step.digest,
            choice=choice,  # type: ignore[arg-type]
            actor="me",
            authentication="terminal",
            comment=comment,
            rework_stage=stage,
            edited_proposal="e" * 64 if edited else None,
        )
        obsolete = superseded_by(self.state, decision)
        self.add(DecisionRecorded(decision=decision), *([obsolete] if obsolete else []))
        return decision

    def go(self, passed: bool = True) -> Any:
        """One step of the pipeline."""
        step = self.next
        match step:
            case Propose():
                made = proposal_of(step.gate, step.round)
                self.add(ProposalMade(gate=step.gate, round=step.round, proposal=made, proposer="rules"))
            case OpenGate():
                finished = self.state.finished(step.gate)
                blocked = bool(finished and finished.verdicts and not finished.verdicts[0].passed)
                self.add(GateOpened(gate=step.gate, round=step.round, digest=SHA, blocked=blocked))
            case RunStage():
                self.add(AttemptReserved(stage=step.stage, attempt=step.attempt, parameters=SHA))
                self.publish(step.stage, step.attempt)
                self.add(VerdictsRecorded(stage=step.stage, attempt=step.attempt, verdicts=[verdict(passed)]))
            case RecordVerdicts():
                self.add(VerdictsRecorded(stage=step.stage, attempt=step.attempt, verdicts=[verdict(passed)]))
            case Release():
                self.add(ReleasePublished(folder="release", manifest=SHA))
            case Done() if not step.recorded:
                self.add(RunFinished())
            case Rejected() if not step.recorded:
                self.add(RunRejected(gate=step.gate.name, round=step.gate.round, comment=""))
        return step

    def publish(self, stage: str, attempt: int) -> None:
        self.add(AttemptPublished(stage=stage, attempt=attempt, evidence=SHA, report=SHA))

    def to_gate(self, gate: str, passed: bool = True) -> History:
        while not (isinstance(self.next, Wait) and self.next.gate == gate):
            if isinstance(self.next, Wait):
                self.decide("approve")
            else:
                self.go(passed=passed)
        return self


class Passage(RuleBasedStateMachine):
    """A run to which anything happens that may: people decide anything, stages end anyhow, processes die anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.history = History()
        self.ran: set[tuple[str, int]] = set()
        self.asked: set[tuple[str, int]] = set()
        self.decided: set[tuple[str, int]] = set()

    @property
    def step(self) -> Any:
        return self.history.next

    def is_step(*kinds: type) -> Any:
        return precondition(lambda self: isinstance(self.step, kinds))

    @is_step(Propose, OpenGate, RecordVerdicts, Release)
    @rule()
    def pipeline_goes_on(self) -> None:
        step = self.history.go()
        if isinstance(step, OpenGate):
            assert (step.gate, step.round) not in self.asked
            assert step.proposal == proposal_of(step.gate, step.round)
            self.asked.add((step.gate, step.round))

    @is_step(RunStage)
    @rule(passed=st.booleans())
    def stage_ends(self, passed: bool) -> None:
        step = self.step
        assert (step.stage, step.attempt) not in self.ran
        assert step.proposal == self.history.state.approved_proposal(step.stage)
        self.ran.add((step.stage, step.attempt))
        self.history.go(passed=passed)

    @is_step(RunStage)
    @rule()
    def stage_fails(self) -> None:
        step = self.step
        self.history.add(
            AttemptReserved(stage=step.stage, attempt=step.attempt, parameters=SHA),
            AttemptFailed(stage=step.stage, attempt=step.attempt, error="E", message="boom"),
        )
        again = self.step
        assert (again.stage, again.attempt, again.failed_before) == (step.stage, step.attempt + 1, "E: boom")
        assert again.proposal == step.proposal
        other = next_step(self.history.state, retry=False)
        assert isinstance(other, Propose)
        assert other.gate == step.stage
        assert other.feedback is not None

    @is_step(RunStage)
    @rule(published=st.booleans(), set_aside=st.booleans())
    def process_dies_in_a_stage(self, published: bool, set_aside: bool) -> None:
        step = self.step
        self.history.add(AttemptReserved(stage=step.stage, attempt=step.attempt, parameters=SHA))
        if published:
            self.ran.add((step.stage, step.attempt))
            self.history.publish(step.stage, step.attempt)
            assert self.step == RecordVerdicts(step.stage, step.attempt)
            return
        if set_aside:
            self.history.add(AttemptAbandoned(stage=step.stage, attempt=step.attempt, reason="partial"))
        again = self.step
        assert (again.stage, again.attempt, again.partial) == (step.stage, step.attempt, True)

    @is_step(Wait)
    @rule(edited=st.booleans())
    def person_approves(self, edited: bool) -> None:
        decision = self._decide("approve", edited=edited)
        if decision.gate == RELEASE:
            assert isinstance(self.step, Release)
        else:
            assert isinstance(self.step, RunStage)
            assert self.step.stage == decision.gate
            assert (self.step.proposal == "e" * 64) is edited

    @is_step(Wait)
    @rule(back=st.integers(0, 4))
    def person_sends_back(self, back: int) -> None:
        waiting = self.step
        order = (*STAGES, RELEASE)
        possible = order[: order.index(waiting.gate) + 1]
        stage = None if back == 4 else possible[back % len(possible)]
        expected = stage or (possible[-2] if waiting.blocked and len(possible) > 1 else waiting.gate)
        decision = self._decide("rework", stage=stage)
        assert isinstance(self.step, Propose)
        assert self.step.gate == expected
        assert self.step.feedback == Feedback(decision.gate, decision.round, "me", "c")
        state = self.history.state
        later = order[order.index(expected) :]
        assert all(a.state == "superseded" for s in later for a in state.attempts.get(s, []))
        assert not set(later) & set(state.approvals)

    @is_step(Wait)
    @rule(often=st.integers(0, 9))
    def person_rejects(self, often: int) -> None:
        if often:
            return
        self._decide("reject")
        assert isinstance(self.step, Rejected)
        assert self.history.state.state == "rejected"

    def _decide(self, choice: str, **more: Any) -> Decision:
        key = (self.step.gate, self.step.round)
        assert key not in self.decided
        self.decided.add(key)
        return self.history.decide(choice, **more)

    @is_step(Done, Rejected)
    @rule()
    def end_is_recorded(self) -> None:
        self.history.go()
        assert self.step.recorded
        assert self.history.state.terminal

    @precondition(lambda self: not self.history.state.terminal)
    @rule(which=st.integers(0, 3))
    def something_beside_happens(self, which: int) -> None:
        before = self.step
        number = self.history.state.fence + 1
        self.history.add(
            (
                LeaseTaken(fence=number, owner="someone else"),
                PrefectAttached(flow_run="f", reason="again"),
                RunStopped(stage="train", reason="asked to"),
                CheckpointSaved(stage="train", attempt=1, step=1, sha256=SHA),
            )[which]
        )
        assert self.step == before

    @invariant()
    def whoever_folds_gets_the_same(self) -> None:
        state = RunState()
        for event in self.history.events:
            advance(state, event)
        assert state == self.history.state

    @invariant()
    def what_ran_is_not_run_again(self) -> None:
        if isinstance(self.step, RunStage):
            assert (self.step.stage, self.step.attempt) not in self.ran

    @invariant()
    def what_was_decided_is_not_asked_again(self) -> None:
        if isinstance(self.step, Wait | OpenGate):
            assert (self.step.gate, self.step.round) not in self.decided

    @invariant()
    def the_state_waits_when_a_person_is_due(self) -> None:
        assert (self.history.state.state == "waiting") is isinstance(self.step, Wait)

    @invariant()
    def one_gate_waits_at_most(self) -> None:
        assert sum(gate.decision is None for gate in self.history.state.gates.values()) <= 1

    @invariant()
    def each_stage_builds_on_stages_that_count(self) -> None:
        step, state = self.step, self.history.state
        if isinstance(step, RunStage):
            before = STAGES[: STAGES.index(step.stage)]
            assert set(state.inputs(before)) == set(before)

    @invariant()
    def the_status_can_be_shown(self) -> None:
        document = status_document(self.history.state, "r", "p", ["me"])
        assert document["state"] == self.history.state.state
        assert [stage["name"] for stage in document["stages"]] == list(STAGES)


Passage.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPassage = Passage.TestCase


def test_a_run_that_is_always_approved_runs_each_stage_once_and_ends():
    history = History().to_gate(RELEASE)
    history.decide("approve")
    while not (isinstance(history.next, Done) and history.next.recorded):
        history.go()
    kinds = [event.kind for event in history.events]
    assert kinds.count("attempt.reserved") == len(STAGES)
    assert kinds.count("gate.opened") == kinds.count("decision.recorded") == len(STAGES) + 1
    assert kinds[-1] == "run.finished"
    assert history.state.state == "finished"


def test_rework_after_a_failed_blocking_criterion_repeats_the_stage_that_failed():
    history = History().to_gate("train")
    history.decide("approve")
    history.go(passed=False)
    while not isinstance(history.next, Wait):
        history.go()
    assert history.next == Wait("evaluate", 1, SHA, blocked=True)
    history.decide("rework", comment="lower the learning rate")
    assert history.next == Propose("train", 2, Feedback("evaluate", 1, "me", "lower the learning rate"))
    history.to_gate("train").decide("approve")
    assert history.next == RunStage("train", 2, proposal_of("train", 2))
    history.go()
    assert history.next == Propose("evaluate", 2)


def test_rework_of_a_gate_that_is_not_blocked_repeats_only_the_proposal():
    history = History().to_gate("train")
    history.decide("rework")
    assert isinstance(history.next, Propose)
    assert (history.next.gate, history.next.round) == ("train", 2)
    assert history.state.current("data") is not None
    assert "attempts.superseded" not in [event.kind for event in history.events]


def test_rework_of_an_earlier_stage_says_what_it_makes_obsolete():
    history = History().to_gate("evaluate")
    history.decide("rework", stage="data")
    last = history.events[-1]
    assert last.kind == "attempts.superseded"
    assert last.payload["attempts"] == {"data": 1, "train": 1}
    document = status_document(history.state, "r", "p")
    assert [stage["attempt"] for stage in document["stages"]] == [None, None, None]


def test_the_decision_alone_makes_attempts_obsolete():
    history = History().to_gate("evaluate")
    history.decide("rework", stage="data")
    assert history.events.pop().kind == "attempts.superseded"
    assert {a.state for attempts in history.state.attempts.values() for a in attempts} == {"superseded"}


def test_a_failed_stage_can_be_proposed_anew():
    history = History().to_gate("train")
    history.decide("approve")
    history.add(
        AttemptReserved(stage="train", attempt=1, parameters=SHA),
        AttemptFailed(stage="train", attempt=1, error="E", message="out of memory"),
    )
    assert history.state.state == "failed"
    step = next_step(history.state, retry=False)
    assert step == Propose("train", 2, Feedback("train", 1, "", "E: out of memory"))
    history.add(ProposalMade(gate="train", round=2, proposal=SHA, proposer="rules"))
    assert history.next == OpenGate("train", 2, SHA)
    history.to_gate("train").decide("approve")
    assert history.next == RunStage("train", 2, SHA, failed_before="E: out of memory")


def test_the_status_document_is_that_of_the_contract():
    history = History().to_gate("train", passed=False)
    assert status_document(history.state, "r", "p", ["me"]) == {
        "run": "r",
        "project": "p",
        "rehearsal": None,
        "state": "waiting",
        "stage": "train",
        "gate": {
            "id": "r.train.1",
            "round": 1,
            "digest": SHA,
            "opened_at": "2026-01-01T00:00:09.000000Z",
            "waits_for": ["me"],
        },
        "open_gates": [
            {
                "id": "r.train.1",
                "round": 1,
                "digest": SHA,
                "opened_at": "2026-01-01T00:00:09.000000Z",
                "waits_for": ["me"],
            }
        ],
        "work": [],
        "stages": [
            {
                "name": "data",
                "attempt": 1,
                "state": "published",
                "verdicts": [
                    {"metric": "loss", "value": 2.0, "op": "<", "bound": 1.0, "blocking": True, "passed": False}
                ],
            },
            {"name": "train", "attempt": None, "state": "pending", "verdicts": []},
            {"name": "evaluate", "attempt": None, "state": "pending", "verdicts": []},
        ],
    }


def test_an_event_of_an_unknown_kind_is_counted_and_changes_nothing():
    history = History().to_gate("train")
    before = history.next
    row = seal("r", 99, "invented.later", "x", datetime(2026, 1, 2, tzinfo=UTC), {"any": 1}, history.events[-1].hash)
    history.events.append(opened(row))
    assert history.next == before
    assert history.state.unknown == 1
