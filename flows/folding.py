"""Where a run stands: a pure fold of its events. Whoever folds them gets the same state."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from specs.criteria import Verdict, blocked
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
    RunWaits,
    SpecAmended,
    StageSuperseded,
    UnknownEvent,
    VerdictsRecorded,
    WorkHandedIn,
    WorkHandedOut,
)
from specs.proposals import Finding
from specs.stage_graph import RELEASE, StageGraph

State = Literal["running", "waiting", "decided", "failed", "rejected", "stopped", "finished"]
AttemptState = Literal["reserved", "published", "failed", "abandoned", "superseded"]


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
    """One round of one gate; `decision` is None while it waits. `digest` is of what it shows now, edits included.

    `withdrawn`: a rework at another gate does again what this one rests on.
    """

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
    withdrawn: bool = False

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
        return self.decision is not None or self.expired_at is not None or self.withdrawn


@dataclass(frozen=True)
class HandedIn:
    """The work that a person handed in for a stage."""

    work: WorkHandedIn
    actor: str
    at: datetime


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
    """A gate that the run is heading for or stands at. A line has one at a time."""

    gate: str
    round: int
    feedback: Feedback | None = None


@dataclass
class RunState:
    """Everything that the events of one run say."""

    run: str = ""
    created: RunCreated | None = None
    created_at: datetime | None = None
    graph: StageGraph = field(default_factory=lambda: StageGraph.line(()))
    state: State = "running"
    stage: str = ""
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    gates: dict[tuple[str, int], Gate] = field(default_factory=dict)
    proposals: dict[tuple[str, int], str] = field(default_factory=dict)
    approvals: dict[str, Gate] = field(default_factory=dict)
    goals: dict[str, Goal] = field(default_factory=dict)
    newest_gate: Gate | None = None
    handed_out: dict[tuple[str, int], WorkHandedOut] = field(default_factory=dict)
    handed_in: dict[tuple[str, int], HandedIn] = field(default_factory=dict)
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
    def stages(self) -> tuple[str, ...]:
        """The stages in the order of their folders."""
        return self.graph.stages

    @property
    def order(self) -> tuple[str, ...]:
        """The gates in order: one before each stage, then the release gate."""
        return self.graph.order

    @property
    def goal(self) -> Goal:
        """The first gate that the run is heading for."""
        return next((self.goals[gate] for gate in self.order if gate in self.goals), Goal("", 1))

    @property
    def open_gates(self) -> list[Gate]:
        """The gates that wait for a decision, in order."""
        waiting = [gate for gate in self.gates.values() if not gate.closed]
        return sorted(waiting, key=lambda gate: self.order.index(gate.name) if gate.name in self.order else -1)

    @property
    def gate(self) -> Gate | None:
        """The first gate that waits for a decision; while none does, the one that opened last."""
        return next(iter(self.open_gates), self.newest_gate)

    @property
    def by_person(self) -> Collection[str]:
        """The stages that wait for a person's work."""
        return self.created.by_person if self.created else ()

    def current(self, stage: str) -> Attempt | None:
        """The newest attempt of a stage that still counts."""
        return next((a for a in reversed(self.attempts.get(stage, [])) if a.state != "superseded"), None)

    def finished(self, gate: str) -> Attempt | None:
        """The published attempt of the stage before a gate, of several the first; None at the first gate."""
        return next(iter(self.all_finished(gate)), None)

    def all_finished(self, gate: str) -> list[Attempt]:
        """The published attempts of the stages directly before a gate, in order; those that failed come first."""
        found = [self.current(stage) for stage in self.graph.before.get(gate, ())]
        published = [a for a in found if a is not None and a.state == "published"]
        return sorted(published, key=lambda a: not blocked(a.verdicts or ()))

    def blocked(self, gate: str) -> bool:
        """Whether a blocking criterion failed in a stage directly before a gate."""
        return any(blocked(a.verdicts or ()) for a in self.all_finished(gate))

    def done(self, stage: str) -> bool:
        """Whether a stage has an attempt that counts, with its verdicts."""
        attempt = self.current(stage)
        return attempt is not None and attempt.state == "published" and attempt.verdicts is not None

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
        case _ if state == "rejected":
            return state  # what ran beside the rejected gate may still end
        case DecisionRecorded():
            return "rejected" if payload.decision.choice == "reject" else "decided"
        case WorkHandedIn():
            return "decided"
        case GateOpened() | WorkHandedOut() | RunWaits():
            return "waiting"
        case AttemptFailed():
            return "failed"
        case RunStopped():
            return state if state == "waiting" else "stopped"  # a gate waits on, whoever watches
        case LeaseTaken():
            return "running" if state in ("stopped", "failed", "decided") else state
        case RunCreated() | AttemptReserved() | AttemptPublished() | VerdictsRecorded() | ProposalMade():
            return "running"
        case SpecAmended():
            return "running" if state == "waiting" else state
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
        case WorkHandedOut() | WorkHandedIn():
            return payload.stage
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
            state.graph = StageGraph.recorded(payload.stages, payload.edges)
            state.goals = {gate: Goal(gate, 1) for gate in state.order if not state.graph.before[gate]}
        case SpecAmended():
            _amend(state, payload)
        case ProposalMade():
            _propose(state, payload)
        case GateOpened():
            found = tuple(payload.findings or ())
            gate = Gate(payload.gate, payload.round, payload.digest, event.at, payload.blocked, found)
            state.newest_gate = state.gates[gate.name, gate.round] = gate
        case WorkHandedOut():
            state.handed_out[payload.stage, payload.round] = payload
        case WorkHandedIn():
            state.handed_in[payload.stage, payload.round] = HandedIn(payload, event.actor, event.at)
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


def _amend(state: RunState, amended: SpecAmended) -> None:
    if state.created is None or not may_amend(state) or amended.before != state.created.spec:
        return
    state.created = state.created.model_copy(update={"spec": amended.spec})
    for gate in state.open_gates:
        _keep(state, replace(gate, withdrawn=True))
    state.goals = {gate: Goal(gate, state.last_round(gate) + 1) for gate in state.goals}


def may_amend(state: RunState) -> bool:
    """Whether the spec of a run can still be taken in anew: nothing was approved, and nothing ran."""
    return not (state.terminal or state.rejection or state.approvals or any(state.attempts.values()))


def _propose(state: RunState, made: ProposalMade) -> None:
    state.proposals[made.gate, made.round] = made.proposal
    attempt = state.current(made.gate)
    if attempt is not None and attempt.state == "failed":
        # The stage that failed is proposed anew: its old approval no longer runs anything.
        state.goals[made.gate] = Goal(made.gate, made.round)
        state.approvals.pop(made.gate, None)


def _keep(state: RunState, gate: Gate) -> None:
    state.gates[gate.name, gate.round] = gate
    newest = state.newest_gate
    if newest and (newest.name, newest.round) == (gate.name, gate.round):
        state.newest_gate = gate


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
        again = state.graph.from_on(target)
        for later in again:
            state.approvals.pop(later, None)
            state.goals.pop(later, None)
        for other in [g for g in state.gates.values() if g.name in again and not g.closed]:
            _keep(state, replace(other, withdrawn=True))  # what it rests on is done again
        requests = tuple(sorted(decision.requests.items()))
        feedback = Feedback(gate.name, gate.round, decision.actor, decision.comment, requests)
        state.goals[target] = Goal(target, state.last_round(target) + 1, feedback)


def rework_target(state: RunState, gate: Gate, stage: str | None) -> str:
    """The gate that a rework leads to: the named stage's, else the finished one's if it failed a blocking criterion."""
    if stage in state.order:
        return stage
    before = state.graph.before.get(gate.name, ())
    if gate.name not in state.order:
        return state.order[0]
    if not (gate.blocked and before):
        return gate.name
    return next((a.stage for a in state.all_finished(gate.name)), before[0])


def _obsolete(state: RunState, target: str) -> dict[str, int]:
    return {s: state.attempts[s][-1].number for s in state.graph.from_on(target) if state.attempts.get(s)}


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
        _done(state, payload.stage)


def _done(state: RunState, stage: str) -> None:
    """A stage is done: the run heads for every gate that waited for it alone, unless it is there already."""
    state.goals.pop(stage, None)
    for gate in state.graph.after(stage):
        reached = gate in state.goals or gate in state.approvals or state.current(gate) is not None
        if not reached and all(state.done(s) for s in state.graph.before[gate]):
            state.goals[gate] = Goal(gate, state.last_round(gate) + 1)
