"""Record a person's decision and ring the doorbell. The command line and, later, the page come through here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows import doorbell
from flows.decide import decide
from flows.ledger import Ledger
from flows.state import fold
from flows.workspace import Workspace
from specs.decisions import Authentication
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
) -> dict[str, Any]:
    """Record one decision on the open gate; returns it as plain data, with whether a worker was told.

    Raises `DecisionRefused`, `PolicyRefused`, `GuardRefused` or `InputError`; then nothing was recorded.
    """

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
    )
    document: dict[str, Any] = dict(event.payload["decision"])
    document["sequence"] = event.sequence
    document["worker_told"] = doorbell.ring(fold(ledger.events(workspace.run)))
    return document
