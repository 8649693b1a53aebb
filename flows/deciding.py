"""Record a person's decision and ring the doorbell. The command line and the page come through here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows import doorbell, pinning, signing, tokens
from flows.decide import Sign, decide, shown_proposal
from flows.entitled import require_entitled
from flows.frozen import frozen_policy
from flows.gatefiles import load_proposal
from flows.ledger import Ledger
from flows.rehearsing import rehearsed_otherwise, required_rehearsal
from flows.standing import waiting
from flows.state import RunState, fold
from flows.workspace import Workspace, frozen_spec
from specs.decisions import Authentication
from specs.errors import PolicyRefused
from specs.events import DecisionRecorded, Event
from specs.proposals import Proposal


def record(
    workspace: Workspace,
    ledger: Ledger,
    *,
    choice: str,
    actor: str,
    authentication: Authentication,
    comment: str = "",
    edits: Mapping[str, Any] | None = None,
    override: bool = False,
    rework_stage: str | None = None,
    expected_digest: str | None = None,
    requests: Mapping[str, Any] | None = None,
    token: str | None = None,
    key: str | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """Record one decision on the open gate; returns it as plain data, with what the gate waits for after it.

    `name` is the gate, which must be said where several are open.

    `key` is the SSH key to sign with, `default` for the person's own; `token` is a personal token. Raises
    `DecisionRefused`, `PolicyRefused`, `SignatureRefused`, `GuardRefused` or `InputError`; then nothing was recorded.
    """
    state = fold(ledger.events(workspace.run))
    policy_is_pinned(workspace, state)
    if choice != "reject":  # a run whose history is broken can still be ended
        require_entitled(ledger, workspace)
    credential, authentication = proof(workspace, actor, authentication, token, key)
    rehearsal = _rehearsal(workspace, ledger, state, name) if choice == "approve" else ""

    def guard(proposal: Proposal) -> Proposal:
        from flows.guarding import guard_of

        return guard_of(workspace, ledger, proposal)

    event = decide(
        ledger,
        workspace.run,
        choice=choice,
        actor=actor,
        authentication=authentication,
        run_dir=workspace.folder,
        guard=guard,
        comment=comment,
        edits=edits,
        override=override,
        rework_stage=rework_stage,
        expected_digest=expected_digest,
        requests=requests,
        credential=credential,
        account="" if key or token else tokens.account(),
        sign=signer(workspace, state, actor, key) if key else None,
        name=name,
        rehearsal=rehearsal,
    )
    return _recorded(workspace, ledger, event, rehearsal)


def _recorded(workspace: Workspace, ledger: Ledger, event: Event, rehearsal: str) -> dict[str, Any]:
    """What was recorded as plain data, with what the gate waits for now; rings for the worker of a decided gate."""
    state = fold(ledger.events(workspace.run))
    document: dict[str, Any] = dict(event.payload["decision"])
    gate = state.gates.get((document["gate"], document["round"]))
    document |= {"sequence": event.sequence, "kind": event.kind}
    if gate is not None:
        document |= {"shows": gate.digest, **waiting(frozen_policy(state, workspace.folder), gate).document()}
    if rehearsal:
        document["rehearsed_otherwise"] = rehearsed_otherwise(workspace, rehearsal, frozen_spec(workspace))
    document["worker_told"] = event.kind == DecisionRecorded.kind and doorbell.ring(state)
    return document


def _rehearsal(workspace: Workspace, ledger: Ledger, state: RunState, name: str | None) -> str:
    """The rehearsal that an approval of the open gate rests on; raises `GuardRefused` where a needed one is missing."""
    gate = next((gate for gate in state.open_gates if name in (None, gate.name)), None)
    if gate is None:
        return ""
    shown = load_proposal(workspace.folder, shown_proposal(state, gate))
    return required_rehearsal(workspace, ledger, state, gate.name, shown.parameters)


def policy_is_pinned(workspace: Workspace, state: RunState) -> bool:
    """Whether the run's frozen policy is pinned; raises `PolicyRefused` when the project has other pins."""
    name = state.created.project if state.created else ""
    return pinning.require_pinned(name, workspace.project_dir, frozen_policy(state, workspace.folder))


def proof(
    workspace: Workspace, actor: str, claimed: Authentication, token: str | None, key: str | None = None
) -> tuple[str, Authentication]:
    """(the id of the token, how the person proves who they are): by a key that signs, else a token, else as claimed."""
    if key:
        return "", "ssh_signature"
    return (prove(token, actor, workspace), "token") if token else ("", claimed)


def prove(token: str, actor: str, workspace: Workspace) -> str:
    """The id of the token, if it is this person's. Raises `PolicyRefused` for another's, or for what is none."""
    found = tokens.token_in(token, workspace.project_dir)
    if found.approver != actor:
        raise PolicyRefused(
            f"the token in {tokens.VARIABLE} is of {found.approver!r}, the decision is by {actor!r}",
            f"decide as {found.approver}, or with a token of your own",
        )
    return found.id


def signature_of(workspace: Workspace, state: RunState, actor: str, key: str, data: bytes) -> str:
    """The signature of the person over `data`, verified against the keys that the frozen policy lists for them."""
    person = frozen_policy(state, workspace.folder).approver(actor)
    signature = signer(workspace, state, actor, key)(data)
    signing.verify(person.keys if person else [], actor, signing.NAMESPACE, data, signature)
    return signature


def signer(workspace: Workspace, state: RunState, actor: str, key: str) -> Sign:
    """Signs decisions with a key, `default` for the one of the person's own that the frozen policy lists."""
    person = frozen_policy(state, workspace.folder).approver(actor)

    def sign(data: bytes) -> str:
        path = signing.default_key(person.keys if person else []) if key == "default" else Path(key)
        return signing.sign(path, signing.NAMESPACE, data)

    return sign
