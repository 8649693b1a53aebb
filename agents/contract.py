"""What a proposer is given and what it gives back. A proposer suggests; it decides nothing and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from specs.base import Name, Sha256, Strict
from specs.canonical import digest
from specs.costs import Took
from specs.events import FallbackTaken
from specs.parameters import TrainingConfiguration
from specs.project import Project
from specs.proposals import MemoryCheck, Proposal
from specs.results import Evidence

MemoryFunction = Callable[[TrainingConfiguration], MemoryCheck]
"""The memory account of one training configuration for the base model and device of this run."""


def fillable_at(spec: Project, gate: str) -> float:
    """The share of usable memory that a proposal of this gate may fill.

    A stress test is not proposed what it would block. What passed it, at the gate of `train`, was measured: there
    only the device's memory is a limit.
    """
    share = spec.fillable if gate == "stress_test" else None
    return 1.0 if share is None else share


class ProposerContext(Strict):
    """Everything a proposer may know. Equal contexts give equal proposals (rules)."""

    spec: Project
    gate: Name = Field(description="the stage the proposal is for, or release")
    round: int = Field(1, ge=1)
    feedback: str = Field("", description="what the person said when asking for this round")
    last_proposal: Proposal | None = Field(None, description="of the round before, at this gate")
    approved: dict[str, Proposal] = Field(
        default_factory=dict, description="the proposals that finished stages ran with, by stage"
    )
    evidence: dict[str, Evidence] = Field(default_factory=dict, description="of finished stages, by stage")
    source_summaries: list[dict[str, Any]] = Field(
        default_factory=list, description="one per source, as tasks.data.probe counted it"
    )
    survey: dict[str, Any] = Field(
        default_factory=dict, description="before the data stage: what a look through the sources found"
    )
    lengths: dict[str, Any] = Field(default_factory=dict, description="summary.json of the data stage")
    trials: dict[str, Any] = Field(default_factory=dict, description="trials.json of the dry run; empty without one")
    base_model: Path | None = Field(None, description="local folder of the base model, once it is resolved")
    device: dict[str, Any] = Field(
        default_factory=dict, description="kind (cpu|cuda), name, count, usable_bytes, physical_cores, bf16"
    )
    model_sha256: str = Field("", description="digest of the base model, once it is resolved")
    costs: list[Took] = Field(
        default_factory=list, description="what work took on this machine, newest first: see flows.costs"
    )
    costs_unread: int = Field(0, ge=0, description="lines of that record that cannot be read and teach nothing")
    history: list[dict[str, Any]] = Field(
        default_factory=list, description="earlier runs, oldest first: see flows.earlier"
    )
    runs_unread: int = Field(0, ge=0, description="earlier runs that teach nothing: incomplete or changed")


class Message(Strict):
    """One message to or from a language model."""

    role: str
    content: str


class Transcript(Strict):
    """The conversation with a language model behind a proposal, as stored for the ledger."""

    schema_version: int = 1
    model: str
    calls: int = Field(ge=0)
    messages: list[Message]
    outcome: str

    @property
    def sha256(self) -> Sha256:
        """Digest of the canonical bytes."""
        return digest(self)


class Outcome(Strict):
    """A proposal with what the ledger keeps beside it. `transcript` is null where no model was asked."""

    proposal: Proposal
    transcript: Transcript | None = None
    fallback: FallbackTaken | None = None


class Proposer(Protocol):
    """Suggests the parameters of the next stage. Raises `GuardRefused` when nothing inside the limits exists."""

    name: str

    def propose(self, context: ProposerContext) -> Proposal:
        """The guarded proposal for `context.gate`."""

    def consider(self, context: ProposerContext) -> Outcome:
        """The same, with the transcript and fallback for the ledger."""
