"""Where a run stands: a pure fold of its events. Whoever folds them gets the same state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from flows.run_state import Attempt, Feedback, Gate, Goal, HandedIn, RunState, Said, State
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
from specs.stage_graph import RELEASE, StageGraph


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
