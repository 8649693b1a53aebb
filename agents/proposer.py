"""The proposer that a spec names."""

from __future__ import annotations

from agents.contract import MemoryFunction, Message, Outcome, Proposer, ProposerContext, Transcript
from specs.project import Project

__all__ = ["MemoryFunction", "Message", "Outcome", "Proposer", "ProposerContext", "Transcript", "make_proposer"]


def make_proposer(spec: Project, memory: MemoryFunction | None = None) -> Proposer:
    """The proposer that the spec names. With `memory`, proposals are checked against the memory of the device."""
    if spec.agent.proposer == "llm":
        from agents.llm import LlmProposer

        return LlmProposer(spec, memory)
    from agents.rules import RulesProposer

    return RulesProposer(memory)
