"""The guard of a run: proposals of the agent and edits of people pass the same checks."""

from __future__ import annotations

from agents.guard import guard
from flows.gatefiles import load_proposal
from flows.ledger import Ledger
from flows.proposing import memory_of
from flows.state import fold
from flows.workspace import Workspace, frozen_spec
from specs.metrics import STAGES
from specs.proposals import Proposal


def guard_of(workspace: Workspace, ledger: Ledger, proposal: Proposal) -> Proposal:
    """The proposal with its memory account attached; raises `GuardRefused` with everything that is wrong."""
    spec = frozen_spec(workspace)
    state = fold(ledger.events(workspace.run))
    approved = {}
    for stage in state.inputs(STAGES):
        digest = state.approved_proposal(stage)
        if digest is not None:
            approved[stage] = load_proposal(workspace.folder, digest)
    return guard(proposal, spec, approved=approved, memory=memory_of(workspace, spec))
