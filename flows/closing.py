"""End a run that cannot go on, outside a gate: its folder is lost, or it only ever fails."""

from __future__ import annotations

import shutil

from flows import gatefiles, runner
from flows.ledger import Ledger
from flows.state import RunState, fold
from flows.workspace import Workspace
from specs.canonical import sha256_file
from specs.errors import DecisionRefused, InputError, PolicyRefused, Refused
from specs.events import AttemptAbandoned, Event, Payload, RunClosed
from specs.policy import AGENT_ACTORS, Policy


def close_run(workspace: Workspace, ledger: Ledger, actor: str, reason: str) -> Event:
    """Record the end of a run with its reason. Raises `Refused` where a gate can still be decided or a process works.

    Where the policy of the run can be read, an approver closes it; where it is lost, whoever may write the ledger.
    """
    state = fold(ledger.events(workspace.run))
    if state.terminal:
        raise DecisionRefused(f"run {workspace.run} has ended already ({state.state})", "nothing is left to close")
    if not reason.strip():
        raise InputError("closing a run needs a reason", 'say why with -m "..."')
    lost = lost_files(workspace, state)
    if not lost and state.state == "waiting" and state.gate is not None:
        raise Refused(
            f"run {workspace.run} waits at gate {state.gate.name}, where it can be decided",
            f"end it there: gatewright reject {workspace.run} --as WHO -m WHY",
        )
    _may_close(workspace, actor, lost)
    with ledger.take_lease(workspace.run, take_over=reason) as lease:
        leftovers = _leave(workspace, fold(ledger.events(workspace.run)))
        return ledger.append_all(workspace.run, [*leftovers, RunClosed(reason=reason, lost=lost)], actor, lease.fence)[
            -1
        ]


def lost_files(workspace: Workspace, state: RunState) -> list[str]:
    """What a run cannot go on without, and that is missing or not what it began with; relative to its folder."""
    created = state.created
    needed = {"spec.json": created.spec, "policy.json": created.policy} if created else {}
    lost = [
        name
        for name, digest in needed.items()
        if not (workspace.folder / name).is_file() or sha256_file(workspace.folder / name) != digest
    ]
    if state.gate is not None and not state.gate.closed and not lost:
        gate, edited = state.gate, bool(state.gate.amendments)
        lost += gatefiles.changed_files(workspace.folder, gate.name, gate.round, gate.digest, amended=edited)
    return sorted(lost)


def _may_close(workspace: Workspace, actor: str, lost: list[str]) -> None:
    if actor in AGENT_ACTORS:
        raise PolicyRefused(f"{actor!r} is not a person; the agent cannot decide", "a person closes a run")
    if "policy.json" in lost:
        return
    policy = Policy.model_validate_json((workspace.folder / "policy.json").read_bytes())
    known = sorted(a.id for a in policy.approvers)
    if actor not in known:
        raise PolicyRefused(f"{actor!r} is not an approver of this run", f"approvers are: {', '.join(known)}")


def _leave(workspace: Workspace, state: RunState) -> list[Payload]:
    """What was begun and has no end is named; files that no event will ever speak of are set aside or removed."""
    ends: list[Payload] = []
    for stage, attempts in sorted(state.attempts.items()):
        for attempt in attempts:
            unfinished = attempt.state == "published" and attempt.verdicts is None
            if attempt.state != "reserved" and not unfinished:
                continue
            if attempt.state == "reserved":
                runner.set_aside(workspace.attempt(stage, attempt.number))
            ends.append(AttemptAbandoned(stage=stage, attempt=attempt.number, reason="the run was closed"))
    goal = (state.goal.gate, state.goal.round)
    if goal not in state.gates:  # written, never shown: its proposal is kept among the proposals
        folder = gatefiles.gate_folder(workspace.folder, *goal)
        shutil.rmtree(folder, ignore_errors=True)
    return ends
