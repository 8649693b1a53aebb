"""A rank of several: what is divided, and the base of all schemes. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from tasks.memory.generations import Generation
from tasks.memory.settings import TraceSettings
from tasks.memory.timeline import Peak, Place

Parts = dict[str, float]
"""Bytes by resident."""
BACKWARD = ("backward", "recompute")


@dataclass(frozen=True)
class Whole:
    """What a rank divides: bytes and parameters of the traced model. `layer_*` are those of one layer.

    Buffers (positions, scales of packed weights) are whole on every rank.
    """

    layers: int
    weight_bytes: int
    buffer_bytes: int
    layer_weight_bytes: int
    total_parameters: int
    trainable_parameters: int
    trainable_bytes: int
    state_bytes: int
    layer_input_bytes: int
    hidden_size: int
    embedding_bytes: int = 0
    """The input embedding, where the output layer does not share it."""

    @property
    def root_weight_bytes(self) -> int:
        """Weights outside of layers: embeddings, output layer, last norm."""
        return max(0, self.weight_bytes - self.layers * self.layer_weight_bytes)

    @property
    def trains_all(self) -> bool:
        """Whether every weight is trained."""
        return self.trainable_parameters == self.total_parameters

    @property
    def layer_gradient_bytes(self) -> float:
        """Gradients of one layer, in the type of the weights."""
        if self.trains_all:
            return self.layer_weight_bytes
        return self.trainable_bytes / max(1, self.layers)


class Rank(ABC):
    """One rank under a scheme: `at` turns the parts of the single-device trace at a place into its own."""

    def __init__(self, whole: Whole, settings: TraceSettings) -> None:
        self.whole = whole
        self.settings = settings
        self.ranks = settings.gpus
        self.generation: Generation = settings.generation
        self.frozen_bytes = 0 if whole.trains_all else whole.weight_bytes - whole.trainable_bytes
        self.accumulates = settings.gradient_accumulation > 1
        self.offloads_states = settings.offload != "none"
        self.offloads_weights = settings.offload == "all"

    @abstractmethod
    def at(self, place: Place, parts: Mapping[str, float]) -> Parts:
        """Bytes by resident at a place of the step."""

    def places(self, peaks: Mapping[Place, Peak]) -> dict[Place, Mapping[str, float]]:
        """The places of the single-device trace with their parts, and others that matter to the scheme."""
        return {place: dict(peak.residents) for place, peak in peaks.items()}

    def host_bytes(self) -> float:
        """Pinned host memory of this rank."""
        return 0.0

    def done(self, place: Place) -> int:
        """Layers whose backward pass is over at a place."""
        if place.phase not in BACKWARD or place.layer is None:
            return 0
        index = place.layer if place.layer >= 0 else self.whole.layers + place.layer
        return self.whole.layers - 1 - index


class FullyShardedRank(Rank):
    """One rank of FSDP, of either generation. `shard_bytes` are its weights between layers.

    Mixed precision keeps in fp32 what is trained (`grow` is by how much), or everything that came in fp32, and gathers
    it in 16 bits.
    """

    def __init__(self, whole: Whole, settings: TraceSettings) -> None:
        super().__init__(whole, settings)
        amp = settings.compute.startswith("amp")
        self.grow = 2.0 if amp and whole.trains_all and settings.weights in ("bf16", "fp16") else 1.0
        frozen = 2.0 if amp and settings.in_fp32 and not whole.trains_all else 1.0
        self.shard_bytes = (whole.trainable_bytes * self.grow + self.frozen_bytes * frozen) / self.ranks

    def host_bytes(self) -> float:
        """Shards that are offloaded: states with their fp32 copy, and weights with gradients."""
        states = self.whole.state_bytes * self.grow / self.ranks if self.offloads_states else 0.0
        weights = self.shard_bytes + self.whole.trainable_bytes * self.grow / self.ranks
        return states + (weights if self.offloads_weights else 0.0)
