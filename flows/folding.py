"""Where a run stands: a pure fold of its events. Whoever folds them gets the same state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from specs.criteria import Verdict
from specs.decisions import Decision
from specs.events import (
    ApprovalRecorded,
    AttemptAbandoned,
    AttemptFailed,
    AttemptPublished,
    AttemptReserved,
    DecisionRecorded,
    Event,
    GateAmended,
    GateExpired,
    GateOpened,
    LeaseTaken,
    Payload,
    PrefectAttached,
    ProposalMade,
    ReleasePublished,
    RunClosed,
    RunCreated,
    RunFinished,
    RunRejected,
    RunStopped,
    StageSuperseded,
    UnknownEvent,
    VerdictsRecorded,
)
from specs.proposals import Finding

State = Literal["running", "waiting", "decided", "failed", "rejected", "stopped", "finished"]
AttemptState = Literal["reserved", "published", "failed", "abandoned", "superseded"]
RELEASE = "release"


@dataclass(frozen=True)
class Attempt:
    """One attempt of a stage. `superseded` wins over every other state."""

    stage: str
    number: int
    state: AttemptState
    parameters: str = ""
    evidence: str = ""
    report: str = ""
    verdicts: tuple[Verdict, ...] | None = None
    message: str = ""


@dataclass(frozen=True)
class Said:
    """An approval that does not close a round yet, or an edit that others must confirm; `digest` is shown after it."""

    decision: Decision
    at: datetime
    digest: str


@dataclass(frozen=True)
class Gate:
    """One round of one gate; `decision` is None while it waits. `digest` is of what it shows now, edits included."""

    name: str
    round: int
    digest: str
    opened_at: datetime
    blocked: bool
    findings: tuple[Finding, ...] = ()
    decision: Decision | None = None
    decided_at: datetime | None = None
    approvals: tuple[Said, ...] = ()
    amendments: tuple[Said, ...] = ()
    expired_at: datetime | None = None

    @property
    def editors(self) -> tuple[str, ...]:
        """Whose edits are part of what the gate shows now."""
        return tuple(dict.fromkeys(said.decision.actor for said in self.amendments))

    @property
    def edited_proposal(self) -> str | None:
        """Digest of the proposal that the last edit brought; None where nobody edited."""
        return self.amendments[-1].decision.edited_proposal if self.amendments else None

    @property
    def closed(self) -> bool:
        """Whether nothing can be decided here any more."""
        return self.decision is not None or self.expired_at is not None


@dataclass(frozen=True)
class Feedback:
    """What a person wants changed, and where he said so; `actor` is empty for a stage that failed.

    `requests` are parameters by their dotted path, each with a value, `less` or `more`.
    """

    gate: str
    round: int
    actor: str
    comment: str
    requests: tuple[tuple[str, Any], ...] = ()

    @property
    def words(self) -> str:
        """Everything that the next proposal must answer, one thing a line."""
        asked = [f"{path}={_as_asked(value)}" for path, value in self.requests]
        return "\n".join([*([self.comment] if self.comment.strip() else []), *asked])


def _as_asked(value: Any) -> str:
    return str(value) if value in ("less", "more") else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Goal:
    """The gate that the run is heading for or stands at."""

    gate: str
    round: int
    feedback: Feedback | None = None


@dataclass
class RunState:
    """Everything that the events of one run say."""

    run: str = ""
    created: RunCreated | None = None
    created_at: datetime | None = None
    stages: tuple[str, ...] = ()
    state: State = "running"
    stage: str = ""
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    gates: dict[tuple[str, int], Gate] = field(default_factory=dict)
    proposals: dict[tuple[str, int], str] = field(default_factory=dict)
    approvals: dict[str, Gate] = field(default_factory=dict)
    goal: Goal = Goal("", 1)
    gate: Gate | None = None
    flow_runs: list[str] = field(default_factory=list)
    fence: int = 0
    owner: str = ""
    release: ReleasePublished | None = None
    rejection: Gate | None = None
    terminal: bool = False
    sequence: int = 0
    head: str = ""
    unknown: int = 0

    @property
    def flow_run(self) -> str | None:
        """The newest Prefect flow run that mirrors this run."""
        return self.flow_runs[-1] if self.flow_runs else None

    @property
    def order(self) -> tuple[str, ...]:
        """The gates in order: one before each stage, then the release gate."""
        return (*self.stages, RELEASE)

    def current(self, stage: str) -> Attempt | None:
        """The newest attempt of a stage that still counts."""
        return next((a for a in reversed(self.attempts.get(stage, [])) if a.state != "superseded"), None)

    def finished(self, gate: str) -> Attempt | None:
        """The published attempt of the stage before a gate; None at the first gate."""
        order = self.order
        if gate not in order or order.index(gate) == 0:
            return None
        attempt = self.current(order[order.index(gate) - 1])
        return attempt if attempt and attempt.state == "published" else None

    def inputs(self, stages: Sequence[str]) -> dict[str, Attempt]:
        """The published attempts of the named stages."""
        found = {stage: self.current(stage) for stage in stages}
        return {stage: a for stage, a in found.items() if a and a.state == "published"}

    def last_round(self, gate: str) -> int:
        """The highest round of a gate, proposed or opened; 0 for none."""
        return max((r for name, r in (*self.gates, *self.proposals) if name == gate), default=0)

    def approved_proposal(self, gate: str) -> str | None:
        """Digest of the proposal that the approval of a gate stands for, edits included."""
        approval = self.approvals.get(gate)
        if approval is None or approval.decision is None:
            return None
        own = approval.decision.edited_proposal or approval.edited_proposal
        return own or self.proposals.get((gate, approval.round))


# ---- folding


def moved(state: State, payload: Payload) -> State:
    """The state of a run after one more event."""
    match payload:
        case RunFinished():
            return "finished"
        case RunRejected() | RunClosed() | GateExpired():
            return "rejected"
        case DecisionRecorded():
            return "rejected" if payload.decision.choice == "reject" else "decided"
        case GateOpened():
            return "waiting"
        case AttemptFailed():
            return "failed"
        case RunStopped():
            return state if state == "waiting" else "stopped"  # a gate waits on, whoever watches
        case LeaseTaken():
            return "running" if state in ("stopped", "failed", "decided") else state
        case RunCreated() | AttemptReserved() | AttemptPublished() | VerdictsRecorded() | ProposalMade():
            return "running"
    return state


def stage_after(stage: str, payload: Payload) -> str:
    """The stage that a run is at after one more event: the one that runs, or that the next gate leads to."""
    match payload:
        case RunCreated():
            return payload.stages[0] if payload.stages else RELEASE
        case AttemptReserved():
            return payload.stage
        case ProposalMade() | GateOpened():
            return payload.gate
        case ReleasePublished():
            return RELEASE
    return stage


def fold(events: Sequence[Event]) -> RunState:
    """The state that the events of one run lead to. Never raises for a strange order: what makes no sense is inert."""
    result = RunState()
    for event in events:
        advance(result, event)
    return result


def advance(state: RunState, event: Event, payload: Payload | None = None) -> None:
    """Take one more event into a state. `payload` is what `event.read()` gave, for whoever has read it already."""
    payload = payload or event.read()
    state.run = state.run or event.run
    state.sequence, state.head = event.sequence, event.hash
    state.state = moved(state.state, payload)
    state.stage = stage_after(state.stage, payload)
    _apply(state, event, payload)


def _apply(state: RunState, event: Event, payload: Payload) -> None:
    match payload:
        case RunCreated():
            state.created, state.created_at = payload, event.at
            state.stages = tuple(s for s in payload.stages if s != RELEASE)
            state.goal = Goal(state.order[0], 1)
        case ProposalMade():
            _propose(state, payload)
        case GateOpened():
            found = tuple(payload.findings or ())
            gate = Gate(payload.gate, payload.round, payload.digest, event.at, payload.blocked, found)
            state.gate = state.gates[gate.name, gate.round] = gate
        case ApprovalRecorded() | GateAmended():
            _say(state, payload, event.at)
        case GateExpired():
            _expire(state, payload)
        case DecisionRecorded():
            _decide(state, payload.decision, event.at)
        case AttemptReserved() | AttemptPublished() | AttemptAbandoned() | AttemptFailed() | VerdictsRecorded():
            _attempt(state, payload)
        case StageSuperseded():
            for stage, last in payload.attempts.items():
                _supersede(state, stage, last)
        case PrefectAttached():
            state.flow_runs.append(payload.flow_run)
        case LeaseTaken():
            state.fence, state.owner = payload.fence, payload.owner
        case ReleasePublished():
            state.release = payload
        case RunFinished() | RunRejected() | RunClosed():
            state.terminal = True
        case UnknownEvent():
            state.unknown += 1


def _propose(state: RunState, made: ProposalMade) -> None:
    state.proposals[made.gate, made.round] = made.proposal
    attempt = state.current(made.gate)
    if attempt is not None and attempt.state == "failed":
        # The stage that failed is proposed anew: its old approval no longer runs anything.
        state.goal = Goal(made.gate, made.round)
        state.approvals.pop(made.gate, None)


def _keep(state: RunState, gate: Gate) -> None:
    state.gates[gate.name, gate.round] = gate
    if state.gate and (state.gate.name, state.gate.round) == (gate.name, gate.round):
        state.gate = gate


def _say(state: RunState, payload: ApprovalRecorded | GateAmended, at: datetime) -> None:
    decision = payload.decision
    gate = state.gates.get((decision.gate, decision.round))
    if gate is None or gate.closed:
        return
    if isinstance(payload, ApprovalRecorded):
        _keep(state, replace(gate, approvals=(*gate.approvals, Said(decision, at, gate.digest))))
        return
    said = Said(decision, at, payload.digest)
    _keep(state, replace(gate, digest=payload.digest, amendments=(*gate.amendments, said)))


def _expire(state: RunState, expired: GateExpired) -> None:
    gate = state.gates.get((expired.gate, expired.round))
    if gate is None or gate.closed:
        return
    gate = replace(gate, expired_at=expired.expired_at)
    _keep(state, gate)
    state.rejection = gate


def _decide(state: RunState, decision: Decision, at: datetime) -> None:
    gate = state.gates.get((decision.gate, decision.round))
    if gate is None:
        return
    gate = replace(gate, decision=decision, decided_at=at)
    _keep(state, gate)
    if decision.choice == "approve":
        state.approvals[gate.name] = gate
    elif decision.choice == "reject":
        state.rejection = gate
    else:
        target = rework_target(state, gate, decision.rework_stage)
        for stage, last in _obsolete(state, target).items():
            _supersede(state, stage, last)
        for later in state.order[state.order.index(target) :]:
            state.approvals.pop(later, None)
        requests = tuple(sorted(decision.requests.items()))
        feedback = Feedback(gate.name, gate.round, decision.actor, decision.comment, requests)
        state.goal = Goal(target, state.last_round(target) + 1, feedback)


def rework_target(state: RunState, gate: Gate, stage: str | None) -> str:
    """The gate that a rework leads to: the named stage's, else the finished one's if it failed a blocking criterion."""
    if stage in state.order:
        return stage
    order = state.order
    index = order.index(gate.name) if gate.name in order else 0
    return order[index - 1] if gate.blocked and index > 0 else order[index]


def _obsolete(state: RunState, target: str) -> dict[str, int]:
    later = state.order[state.order.index(target) :]
    return {s: state.attempts[s][-1].number for s in later if state.attempts.get(s)}


def superseded_by(state: RunState, decision: Decision) -> StageSuperseded | None:
    """The record of the attempts that a rework makes obsolete, from the state before or after it; None for none."""
    gate = state.gates.get((decision.gate, decision.round))
    if gate is None or decision.choice != "rework":
        return None
    attempts = _obsolete(state, rework_target(state, gate, decision.rework_stage))
    return StageSuperseded(attempts=attempts, by_gate=gate.name, by_round=gate.round) if attempts else None


def _supersede(state: RunState, stage: str, last: int) -> None:
    known = state.attempts.get(stage, [])
    state.attempts[stage] = [replace(a, state="superseded") if a.number <= last else a for a in known]


def _attempt(
    state: RunState,
    payload: AttemptReserved | AttemptPublished | AttemptAbandoned | AttemptFailed | VerdictsRecorded,
) -> None:
    known = state.attempts.setdefault(payload.stage, [])
    index = next((i for i, a in enumerate(known) if a.number == payload.attempt), None)
    if index is None:
        known.append(Attempt(payload.stage, payload.attempt, "reserved"))
        index = len(known) - 1
    attempt = known[index]
    if attempt.state == "superseded":
        return
    match payload:
        case AttemptReserved():
            attempt = replace(attempt, state="reserved", parameters=payload.parameters)
        case AttemptPublished():
            attempt = replace(attempt, state="published", evidence=payload.evidence, report=payload.report)
        case AttemptAbandoned():
            attempt = replace(attempt, state="abandoned", message=payload.reason)
        case AttemptFailed():
            attempt = replace(attempt, state="failed", message=f"{payload.error}: {payload.message}")
        case VerdictsRecorded():
            attempt = replace(attempt, verdicts=tuple(payload.verdicts))
    known[index] = attempt
    if attempt.state == "published" and attempt.verdicts is not None and payload.stage in state.stages:
        following = state.order[state.order.index(payload.stage) + 1]
        state.goal = Goal(following, state.last_round(following) + 1)
