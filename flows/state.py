"""Where a run stands and what comes next, for the pipeline; and the same as a document for people and tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flows.folding import fold, moved, superseded_by
from flows.ledger.chain import timestamp
from flows.run_state import Attempt, AttemptState, Feedback, Gate, Goal, RunState, State
from flows.steps import (
    Done,
    HandOut,
    NextStep,
    OpenGate,
    Propose,
    RecordVerdicts,
    Rejected,
    Release,
    RunStage,
    Wait,
    WaitForWork,
    next_step,
    next_steps,
    waits_for_work,
)
from specs.stage_graph import RELEASE

__all__ = [
    "RELEASE",
    "Attempt",
    "AttemptState",
    "Done",
    "Feedback",
    "Gate",
    "Goal",
    "HandOut",
    "NextStep",
    "OpenGate",
    "Propose",
    "RecordVerdicts",
    "Rejected",
    "Release",
    "RunStage",
    "RunState",
    "State",
    "Wait",
    "WaitForWork",
    "fold",
    "gate_entry",
    "gate_id",
    "moved",
    "next_step",
    "next_steps",
    "status_document",
    "superseded_by",
]


def gate_id(run: str, gate: str, round: int) -> str:
    """The name of one round of a gate across runs."""
    return f"{run}.{gate}.{round}"


def status_document(
    state: RunState, run: str, project: str, waits_for: Sequence[str] = (), more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The answer of `gatewright status --json`. `waits_for` names who may decide; it is empty once decided.

    `more` is what else the policy says of the open gate, as `flows.standing.Waiting` writes it. Where stages run side
    by side, `open_gates` names all that are open and `work` the stages that take a person's work now.
    """
    gate = state.gate if state.gate and (state.open_gates or state.state in ("waiting", "decided")) else None
    if state.terminal or state.rejection is not None:
        gate = None
    return {
        "run": run,
        "project": project,
        "rehearsal": state.created.rehearsal if state.created else None,
        "state": state.state,
        "stage": state.stage,
        "gate": gate_entry(run, gate, waits_for, more) if gate else None,
        "open_gates": [gate_entry(run, one, waits_for, more) for one in state.open_gates] if gate else [],
        "work": waits_for_work(state),
        "stages": [_stage(state, stage) for stage in state.stages],
    }


def gate_entry(run: str, gate: Gate, waits_for: Sequence[str], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A gate as `status` shows it."""
    return {
        "id": gate_id(run, gate.name, gate.round),
        "round": gate.round,
        "digest": gate.digest,
        "opened_at": timestamp(gate.opened_at),
        **(more or {}),
        "waits_for": [] if gate.closed else list(waits_for),
    }


def _stage(state: RunState, stage: str) -> dict[str, Any]:
    attempt = state.current(stage)
    keys = ("metric", "value", "op", "bound", "blocking", "passed")
    verdicts = (attempt.verdicts if attempt else None) or ()
    return {
        "name": stage,
        "attempt": attempt.number if attempt else None,
        "state": attempt.state if attempt else "pending",
        "verdicts": [
            {key: getattr(v, key) for key in keys} | ({} if v.applies else {"applies": False}) for v in verdicts
        ],
    }
