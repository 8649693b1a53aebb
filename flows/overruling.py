"""A person lets a training go on that its early judgement ended, or whose resume was refused because device or
libraries are other ones: recorded, with the reason, before it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from flows.deciding import policy_is_pinned, proof, signature_of
from flows.frozen import frozen_policy
from flows.ledger import Ledger
from flows.rehearsing import TRAIN
from flows.state import RunState, fold
from flows.workspace import Workspace
from specs.canonical import digest
from specs.decisions import Authentication, overruling_bytes
from specs.errors import DecisionRefused, InputError, PolicyRefused
from specs.events import Event, JudgementOverruled, Payload, ResumeConfirmed
from specs.policy import Policy, is_machine
from specs.proposals import Proposal
from specs.resuming import Changed, table
from specs.rulings import PROOFS
from tasks.training.changes import DIFFERENCES, read_rows

if TYPE_CHECKING:
    from tasks.training.judgement import Judgement

GoesOn = JudgementOverruled | ResumeConfirmed


def overrule(
    workspace: Workspace,
    ledger: Ledger,
    actor: str,
    reason: str,
    *,
    authentication: Authentication = "unauthenticated",
    token: str | None = None,
    key: str | None = None,
    shown: Sequence[str] | None = None,
) -> Event:
    """Record that the training goes on; `shown` is what the person read of it (`about`).

    Raises `DecisionRefused` where none was ended so that a person can let it go on, or for another reason than was
    shown, and `PolicyRefused` for who may not: a verdict of stop needs the right to override, as a blocking criterion
    does.
    """
    state = fold(ledger.events(workspace.run))
    ended = _ended(workspace, state)
    if shown is not None and list(shown) != _in_lines(ended):
        raise DecisionRefused("the training was ended for another reason meanwhile", "look again: `gatewright status`")
    if not reason.strip():
        raise InputError("going on needs a reason", 'say why with -m "..."')
    policy_is_pinned(workspace, state)
    policy = frozen_policy(state, workspace.folder)
    credential, authentication = proof(workspace, actor, authentication, token, key)
    common = {
        "stage": TRAIN,
        "attempt": state.attempts[TRAIN][-1].number,
        "parameters": state.attempts[TRAIN][-1].parameters,
        "reason": reason,
        "authentication": authentication,
        "credential": credential,
    }
    said: GoesOn
    if isinstance(ended, list):
        said = ResumeConfirmed.model_validate({**common, "differences": ended})
    else:
        said = JudgementOverruled.model_validate({**common, "verdict": ended.verdict})
    if fault := fault_of(policy, actor, said):
        raise PolicyRefused(fault, PROOFS.get(policy.at(TRAIN).authentication, "ask an approver who may"))
    if key:
        data = overruling_bytes(workspace.run, actor, said.model_dump(mode="json"))
        said = said.model_copy(update={"signature": signature_of(workspace, state, actor, key, data)})

    def judge(now: RunState, at: datetime) -> tuple[Payload, str]:
        if now.sequence != state.sequence:
            raise DecisionRefused(f"run {workspace.run} moved meanwhile", "look where it stands: `gatewright status`")
        return said, actor

    return ledger.settle(workspace.run, judge)


def about(workspace: Workspace, ledger: Ledger) -> list[str]:
    """What a person lets go on, in lines to be read before it is recorded. Raises `DecisionRefused` for nothing."""
    return _in_lines(_ended(workspace, fold(ledger.events(workspace.run))))


def _in_lines(ended: Judgement | list[Changed]) -> list[str]:
    if isinstance(ended, list):
        return ["Its newest checkpoint was written on another device or with other libraries:", *table(ended)]
    return [f"Its early judgement says {ended.verdict}: {ended.words}."]


def _ended(workspace: Workspace, state: RunState) -> Judgement | list[Changed]:
    """The judgement that ended the training, or the differences for which its resume was refused.

    Raises `DecisionRefused` where there is neither, and where some of the differences make it another training.
    """
    attempt = state.current(TRAIN)
    none = DecisionRefused(
        f"no training of run {workspace.run} was ended by its early judgement, or refused because device or libraries "
        f"are other ones; it is {state.state} at {state.stage}",
        "`gatewright status` shows where it stands",
    )
    if attempt is None or attempt.state != "failed" or state.terminal:
        raise none
    worker = workspace.checkpoints(TRAIN, attempt.number) / "worker"
    if "early judgement" in attempt.message:
        return _judged(worker, none)
    rows = read_rows(worker / DIFFERENCES)
    if not rows:
        raise none
    if fixed := [row for row in rows if not row.may_be_confirmed]:
        raise DecisionRefused(
            "with these settings it would be another training, which nobody can confirm:\n" + "\n".join(table(fixed)),
            "put them back, then `gatewright resume`",
        )
    return rows


def _judged(worker: Path, none: DecisionRefused) -> Judgement:
    from tasks.training.judgement import JUDGEMENT, Judgement

    try:
        found = Judgement.model_validate_json((worker / JUDGEMENT).read_bytes())
    except (OSError, ValidationError):
        raise none from None
    if found.verdict not in ("stop", "ask"):
        raise none
    return found


def fault_of(policy: Policy, actor: str, said: GoesOn) -> str:
    """Why a person may not let this training go on; empty for who may."""
    if is_machine(actor):
        return f"{actor!r} is not a person; the agent cannot decide"
    person = policy.approver(actor)
    if person is None:
        return f"{actor!r} is not an approver of this run"
    stopped = isinstance(said, JudgementOverruled) and said.verdict == "stop"
    if stopped and not (policy.solo or person.may_override):
        return f"{actor!r} may not override, and the early judgement says stop"
    rules = policy.at(TRAIN)
    if not rules.proves(said.authentication):
        return f"going on needs {rules.authentication}, as gate {TRAIN} does, and this is {said.authentication}"
    return ""


def overruled(events: Iterable[Event], stage: str, proposal: Proposal) -> str:
    """Why a stage goes on with the parameters of a proposal, whatever its early judgement says; empty where nobody
    said so."""
    parameters = digest(proposal.parameters)
    reasons = [
        payload.reason
        for payload in (event.read() for event in events)
        if isinstance(payload, JudgementOverruled) and (payload.stage, payload.parameters) == (stage, parameters)
    ]
    return reasons[-1] if reasons else ""


def confirmed(events: Iterable[Event], stage: str, proposal: Proposal) -> tuple[Changed, ...]:
    """What a stage with the parameters of a proposal may have otherwise than its checkpoint, as people confirmed."""
    parameters = digest(proposal.parameters)
    return tuple(
        row
        for payload in (event.read() for event in events)
        if isinstance(payload, ResumeConfirmed) and (payload.stage, payload.parameters) == (stage, parameters)
        for row in payload.differences
    )
