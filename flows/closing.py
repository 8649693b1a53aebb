"""End a run that cannot go on, outside a gate: its folder is lost, or it only ever fails."""

from __future__ import annotations

import shutil

from flows import gatefiles, runner, tokens
from flows.deciding import policy_is_pinned, proof, signature_of
from flows.frozen import frozen_policy
from flows.ledger import Ledger
from flows.state import RunState, fold
from flows.workspace import Workspace
from specs.canonical import sha256_file
from specs.decisions import Authentication, closing_bytes
from specs.errors import DecisionRefused, InputError, PolicyRefused, Refused
from specs.events import AttemptAbandoned, Event, Payload, RunClosed
from specs.policy import Policy, is_machine
from specs.rulings import PROOFS


def close_run(
    workspace: Workspace,
    ledger: Ledger,
    actor: str,
    reason: str,
    *,
    authentication: Authentication = "unauthenticated",
    token: str | None = None,
    key: str | None = None,
) -> Event:
    """Record the end of a run with its reason. Raises `Refused` where a gate can still be decided or a process works.

    Where the policy of the run can be read, an approver closes it, who proves it as the next gate asks for; where it
    is lost, whoever may write the ledger. `token` and `key` are as of a decision.
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
    if is_machine(actor):
        raise PolicyRefused(f"{actor!r} is not a person; the agent cannot decide", "a person closes a run")
    policy = None
    if "policy.json" not in lost:
        policy_is_pinned(workspace, state)
        policy = frozen_policy(state, workspace.folder)
    credential, authentication = proof(workspace, actor, authentication, token, key)
    typed_by = "" if key or token else tokens.account()
    closing = RunClosed(
        reason=reason, lost=lost, authentication=authentication, credential=credential, account=typed_by
    )
    if policy is not None:
        _may_close(policy, state, actor, authentication)
    if key:
        closing = _signed(workspace, state, policy, actor, closing, key)
    with ledger.take_lease(workspace.run, take_over=reason) as lease:
        now = fold(ledger.events(workspace.run))
        if now.sequence != state.sequence + 1:  # more happened than that the lease was taken
            raise Refused(f"run {workspace.run} moved meanwhile", "look where it stands: `gatewright status`")
        return ledger.append_all(workspace.run, [*_leave(workspace, now), closing], actor, lease.fence)[-1]


def lost_files(workspace: Workspace, state: RunState) -> list[str]:
    """What a run cannot go on without, and that is missing or not what it began with; relative to its folder."""
    created = state.created
    needed = {"spec.json": created.spec, "policy.json": created.policy} if created else {}
    lost = [
        name
        for name, digest in needed.items()
        if not (workspace.folder / name).is_file() or sha256_file(workspace.folder / name) != digest
    ]
    for gate in state.open_gates if not lost else []:
        edited = bool(gate.amendments)
        lost += gatefiles.changed_files(workspace.folder, gate.name, gate.round, gate.digest, amended=edited)
    return sorted(lost)


def _may_close(policy: Policy, state: RunState, actor: str, authentication: Authentication) -> None:
    """Raises `PolicyRefused` for who is no approver, or proves less than the gate asks for that the run heads for."""
    if policy.approver(actor) is None:
        known = ", ".join(sorted(a.id for a in policy.approvers))
        raise PolicyRefused(f"{actor!r} is not an approver of this run", f"approvers are: {known}")
    rules = policy.at(state.goal.gate)
    if not rules.proves(authentication):
        raise PolicyRefused(
            f"closing needs {rules.authentication}, as gate {rules.gate} does, and this is {authentication}",
            PROOFS[rules.authentication],
        )


def _signed(
    workspace: Workspace, state: RunState, policy: Policy | None, actor: str, closing: RunClosed, key: str
) -> RunClosed:
    """The closing with its signature, verified against the keys that the frozen policy lists for the person."""
    if policy is None or policy.approver(actor) is None:
        raise InputError("policy.json is lost, so that no signature can be verified", "leave --sign out")
    data = closing_bytes(workspace.run, actor, closing.model_dump(mode="json"))
    return closing.model_copy(update={"signature": signature_of(workspace, state, actor, key, data)})


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
    for goal in [(goal.gate, goal.round) for goal in state.goals.values()]:
        if goal not in state.gates:  # written, never shown: its proposal is kept among the proposals
            shutil.rmtree(gatefiles.gate_folder(workspace.folder, *goal), ignore_errors=True)
    return ends
