"""Who proposes and who reports: the proposers, their guard, the task sheet and the reporter. Nothing here decides."""

from agents.proposer import MemoryFunction, Outcome, Proposer, ProposerContext, Transcript, make_proposer

__all__ = ["MemoryFunction", "Outcome", "Proposer", "ProposerContext", "Transcript", "make_proposer"]
