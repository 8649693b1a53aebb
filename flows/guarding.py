"""The guard of a run: proposals of the agent and edits of people pass the same checks."""

from __future__ import annotations

from agents.contract import MemoryFunction, ProposerContext
from agents.guard import guard
from agents.task_sheet import with_consequences
from flows.ledger import Ledger
from flows.measured import proposals_as_run
from flows.proposing import memory_of, proposer_context
from flows.sheets import with_sheet_file
from flows.state import fold
from flows.workspace import Workspace, live_spec
from specs.errors import GuardRefused
from specs.proposals import Proposal, blocking_findings


def guard_of(workspace: Workspace, ledger: Ledger, proposal: Proposal) -> Proposal:
    """The proposal with memory account and expected numbers of its own; raises `GuardRefused` with all that is wrong.

    An edit changes what the stage should bring: the numbers that were shown before it are computed again.
    """
    spec = live_spec(workspace)
    state = fold(ledger.events(workspace.run))
    finished = state.inputs(state.stages)
    approved = {stage: p for stage, p in proposals_as_run(workspace, state, spec).items() if stage in finished}
    memory = memory_of(workspace, spec, ledger)
    guarded = guard(proposal, spec, approved=approved, memory=memory)
    if proposal.stage not in state.stages:
        return guarded
    context = proposer_context(workspace, spec, state, proposal.stage, proposal.round, ledger=ledger)
    return with_expected(workspace, guarded, context, memory)


def with_expected(
    workspace: Workspace, proposal: Proposal, context: ProposerContext, memory: MemoryFunction
) -> Proposal:
    """The proposal with the numbers that follow from its parameters, for its stage and for the stages ahead.

    Raises `GuardRefused` for an edit that leaves the sheet open where it was closed.
    """
    before = {(f.rule, f.stage) for f in blocking_findings(proposal)}
    proposal = with_sheet_file(workspace, with_consequences(proposal, context, memory), context, edited=True)
    worse = [f for f in blocking_findings(proposal) if (f.rule, f.stage) not in before]
    if worse:
        raise GuardRefused(
            "the edit is refused, the task sheet would leave open: " + "; ".join(f.text for f in worse),
            "; ".join(f.sentence for f in worse),
        )
    return proposal
