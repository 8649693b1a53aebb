"""The guard of a run: proposals of the agent and edits of people pass the same checks."""

from __future__ import annotations

from agents.guard import guard
from flows.ledger import Ledger
from flows.proposing import memory_of
from flows.reviewing import approved_proposals
from flows.state import fold
from flows.workspace import Workspace, frozen_spec
from specs.metrics import STAGES
from specs.proposals import Proposal


def guard_of(workspace: Workspace, ledger: Ledger, proposal: Proposal) -> Proposal:
    """The proposal with its memory account attached; raises `GuardRefused` with everything that is wrong."""
    spec = frozen_spec(workspace)
    state = fold(ledger.events(workspace.run))
    finished = state.inputs(STAGES)
    approved = {stage: p for stage, p in approved_proposals(workspace, state).items() if stage in finished}
    return guard(proposal, spec, approved=approved, memory=memory_of(workspace, spec))
