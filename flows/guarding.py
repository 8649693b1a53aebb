"""The guard of a run: proposals of the agent and edits of people pass the same checks."""

from __future__ import annotations

from agents.expectations import expectations
from agents.guard import guard
from flows.ledger import Ledger
from flows.proposing import memory_of, proposer_context
from flows.reviewing import approved_proposals
from flows.state import fold
from flows.workspace import Workspace, live_spec
from specs.metrics import STAGES
from specs.proposals import Expectation, Proposal


def guard_of(workspace: Workspace, ledger: Ledger, proposal: Proposal) -> Proposal:
    """The proposal with memory account and expected numbers of its own; raises `GuardRefused` with all that is wrong.

    An edit changes what the stage should bring: the numbers that were shown before it are computed again.
    """
    spec = live_spec(workspace)
    state = fold(ledger.events(workspace.run))
    finished = state.inputs(STAGES)
    approved = {stage: p for stage, p in approved_proposals(workspace, state).items() if stage in finished}
    memory = memory_of(workspace, spec)
    guarded = guard(proposal, spec, approved=approved, memory=memory)
    if proposal.stage not in STAGES:
        return guarded
    context = proposer_context(workspace, spec, state, proposal.stage, proposal.round, ledger=ledger)
    return with_expected(guarded, expectations(context, proposal.stage, guarded.parameters, memory))


def with_expected(proposal: Proposal, expected: list[Expectation]) -> Proposal:
    """The proposal with these numbers, in its task sheet too where it carries one."""
    changes: dict[str, object] = {"expected": expected}
    if proposal.task_sheet is not None:
        stages = [
            stage.model_copy(update={"expected": expected}) if stage.name == proposal.stage else stage
            for stage in proposal.task_sheet.stages
        ]
        changes["task_sheet"] = proposal.task_sheet.model_copy(update={"stages": stages})
    return proposal.model_copy(update=changes)
