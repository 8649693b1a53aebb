"""A person lets a training go on that its early judgement ended: recorded, with the reason, before it goes on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
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
from specs.events import Event, JudgementOverruled, Payload
from specs.policy import Policy, is_machine
from specs.proposals import Proposal
from specs.rulings import PROOFS

if TYPE_CHECKING:
    from tasks.training.judgement import Judgement


def overrule(
    workspace: Workspace,
    ledger: Ledger,
    actor: str,
    reason: str,
    *,
    authentication: Authentication = "unauthenticated",
    token: str | None = None,
    key: str | None = None,
) -> Event:
    """Record that the training goes on. Raises `DecisionRefused` where none was ended by its early judgement, and
    `PolicyRefused` for who may not: a verdict of stop needs the right to override, as a blocking criterion does."""
    state = fold(ledger.events(workspace.run))
    attempt, judgement = _ended(workspace, state)
    if not reason.strip():
        raise InputError("going on needs a reason", 'say why with -m "..."')
    policy_is_pinned(workspace, state)
    policy = frozen_policy(state, workspace.folder)
    credential, authentication = proof(workspace, actor, authentication, token, key)
    said = JudgementOverruled(
        stage=TRAIN,
        attempt=attempt,
        parameters=state.attempts[TRAIN][-1].parameters,
        verdict=judgement.verdict,
        reason=reason,
        authentication=authentication,
        credential=credential,
    )
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


def _ended(workspace: Workspace, state: RunState) -> tuple[int, Judgement]:
    """The attempt that its early judgement ended, and the judgement. Raises `DecisionRefused` where there is none."""
    from tasks.training.judgement import Judgement

    attempt = state.current(TRAIN)
    path = workspace.checkpoints(TRAIN, attempt.number if attempt else 1) / "worker" / "judgement.json"
    none = DecisionRefused(
        f"no training of run {workspace.run} was ended by its early judgement; it is {state.state} at {state.stage}",
        "`gatewright status` shows where it stands",
    )
    if attempt is None or attempt.state != "failed" or state.terminal or "early judgement" not in attempt.message:
        raise none
    try:
        found = Judgement.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        raise none from None
    if found.verdict not in ("stop", "ask"):
        raise none
    return attempt.number, found


def fault_of(policy: Policy, actor: str, said: JudgementOverruled) -> str:
    """Why a person may not let this training go on; empty for who may."""
    if is_machine(actor):
        return f"{actor!r} is not a person; the agent cannot decide"
    person = policy.approver(actor)
    if person is None:
        return f"{actor!r} is not an approver of this run"
    if said.verdict == "stop" and not (policy.solo or person.may_override):
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
