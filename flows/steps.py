"""What a run does next: small steps, computed from its state alone. A line has one at a time, a graph may have more."""

from __future__ import annotations

from dataclasses import dataclass

from flows.run_state import Feedback, Gate, Goal, RunState
from specs.stage_graph import RELEASE


@dataclass(frozen=True)
class Propose:
    """Ask the proposer for round `round` of a gate; `feedback` must be answered."""

    gate: str
    round: int
    feedback: Feedback | None = None


@dataclass(frozen=True)
class OpenGate:
    """The proposal is stored; write the gate's files, then open it."""

    gate: str
    round: int
    proposal: str


@dataclass(frozen=True)
class Wait:
    """A person must decide."""

    gate: str
    round: int
    digest: str
    blocked: bool


@dataclass(frozen=True)
class HandOut:
    """Write what a person needs to do the work of a stage; `round` is of the approval that it rests on."""

    stage: str
    round: int
    proposal: str


@dataclass(frozen=True)
class WaitForWork:
    """A person must do the work of a stage and hand it in."""

    stage: str
    round: int


@dataclass(frozen=True)
class RunStage:
    """Run an attempt with the approved proposal. `partial`: it began before; enter it again under its number.
    `failed_before` is the message of the attempt that failed last; whoever just saw it fail stops instead.
    """

    stage: str
    attempt: int
    proposal: str
    partial: bool = False
    failed_before: str = ""


@dataclass(frozen=True)
class RecordVerdicts:
    """The attempt is published; its verdicts, which are in its evidence, are not recorded yet."""

    stage: str
    attempt: int


@dataclass(frozen=True)
class Release:
    """Build and publish the release bundle with the approved proposal."""

    round: int
    proposal: str


@dataclass(frozen=True)
class Done:
    """Nothing is left; `recorded` says whether `run.finished` is in the ledger."""

    recorded: bool


@dataclass(frozen=True)
class Rejected:
    """A person rejected; `recorded` says whether `run.rejected` is in the ledger."""

    gate: Gate
    recorded: bool


NextStep = Propose | OpenGate | Wait | HandOut | WaitForWork | RunStage | RecordVerdicts | Release | Done | Rejected


def place_of(step: NextStep) -> str:
    """The gate or stage that a step is at."""
    if isinstance(step, Propose | OpenGate | Wait):
        return step.gate
    return step.stage if isinstance(step, HandOut | WaitForWork | RunStage | RecordVerdicts) else RELEASE


def next_step(state: RunState, *, retry: bool = True) -> NextStep:
    """The first step that is due: one that somebody can do before one that waits for a person."""
    steps = next_steps(state, retry=retry)
    return next((step for step in steps if not isinstance(step, Wait | WaitForWork)), steps[0])


def next_steps(state: RunState, *, retry: bool = True) -> list[NextStep]:
    """Every step that the events call for, in the order of the stages. The same events give the same, whoever asks.

    They can be done in any order, or side by side. `retry=False` proposes a failed stage anew instead of running it
    again with the same parameters.
    """
    if state.rejection is not None:
        return [Rejected(state.rejection, state.terminal)]
    if state.terminal:
        return [Done(recorded=True)]
    goals = [state.goals[gate] for gate in state.order if gate in state.goals]
    return [_towards(state, goal, retry) for goal in goals] or [Propose("", 1)]


def _towards(state: RunState, goal: Goal, retry: bool) -> NextStep:
    if goal.gate == RELEASE and state.created is not None and state.created.rehearsal is not None:
        return Done(recorded=False)  # nothing of a rehearsal is released
    approval = state.approvals.get(goal.gate)
    if approval is not None and approval.round == goal.round:
        return _after_approval(state, approval, retry)
    gate = state.gates.get((goal.gate, goal.round))
    if gate is not None:
        return Wait(gate.name, gate.round, gate.digest, gate.blocked)
    proposal = state.proposals.get((goal.gate, goal.round))
    if proposal is not None:
        return OpenGate(goal.gate, goal.round, proposal)
    return Propose(goal.gate, goal.round, goal.feedback)


def _after_approval(state: RunState, approval: Gate, retry: bool) -> NextStep:
    stage, proposal = approval.name, state.approved_proposal(approval.name) or ""
    if stage == RELEASE:
        return Done(recorded=False) if state.release else Release(approval.round, proposal)
    attempt = state.current(stage)
    number = max((a.number for a in state.attempts.get(stage, [])), default=0) + 1
    if stage in state.by_person and (attempt is None or attempt.state == "failed"):
        if (stage, approval.round) not in state.handed_out:
            return HandOut(stage, approval.round, proposal)
        if (stage, approval.round) not in state.handed_in:
            return WaitForWork(stage, approval.round)
    if attempt is None:
        return RunStage(stage, number, proposal)
    if attempt.state == "published":
        return RecordVerdicts(stage, attempt.number)
    if attempt.state in ("reserved", "abandoned"):
        return RunStage(stage, attempt.number, proposal, partial=True)
    if attempt.state == "failed" and not retry:
        return Propose(stage, state.last_round(stage) + 1, Feedback(stage, approval.round, "", attempt.message))
    return RunStage(stage, number, proposal, failed_before=attempt.message if attempt.state == "failed" else "")


def waits_for_work(state: RunState) -> list[str]:
    """The stages for which work can be handed in now: those that wait, and those that failed on what came."""
    found = [step.stage for step in next_steps(state) if isinstance(step, WaitForWork)]
    for stage in state.by_person:
        attempt, approval = state.current(stage), state.approvals.get(stage)
        if approval and (stage, approval.round) in state.handed_in and (attempt is None or attempt.state == "failed"):
            found.append(stage)
    return found if not state.terminal and state.rejection is None else []
