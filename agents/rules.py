"""The rules proposer: needs no key, no network and no model."""

from __future__ import annotations

from agents.contract import MemoryFunction, Outcome, ProposerContext
from agents.gate_rules import suggest
from agents.guard import guard
from agents.task_sheet import with_consequences
from specs.proposals import Proposal


class RulesProposer:
    """Proposes by fixed rules from counted facts. The first gate's proposal carries the task sheet."""

    name = "rules"

    def __init__(self, memory: MemoryFunction | None = None) -> None:
        self.memory = memory

    def propose(self, context: ProposerContext) -> Proposal:
        """The guarded proposal for a gate; raises `GuardRefused` when nothing inside the limits exists."""
        proposal = with_consequences(suggest(context, self.memory), context, self.memory)
        return guard(proposal, context.spec, approved=context.approved, memory=self.memory)

    def consider(self, context: ProposerContext) -> Outcome:
        """The proposal; rules have no transcript and nothing to fall back to."""
        return Outcome(proposal=self.propose(context))
