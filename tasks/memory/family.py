"""The accounts of one family of configurations for every batch, optimizer and division among ranks. Needs no torch.

A family is what a few recordings know (`recording.py`): method, weights, compute, adapters, checkpointing, attention.
What it answers equals a trace of the whole model at that batch, because every size is a polynomial in the samples and
the length (`moments.py`), every place is linear in depth, an optimizer adds its states at every place and has a step
that no batch changes, and a scheme of ranks divides the parts of each place (`sharding.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import Field

from specs.base import Strict
from specs.errors import InputError
from specs.parameters import Optimizer
from tasks.memory.account import Account, Basis
from tasks.memory.assembly import assembled
from tasks.memory.moments import GRANULE, Peaks, dense
from tasks.memory.settings import TraceSettings
from tasks.memory.timeline import Peak, Place
from tasks.memory.traced import Trace, continued

WINDOWS = ("sliding_window", "attention_chunk_size")
"""Configuration values past which a length needs another mask."""


class PlaceMoments(Strict):
    """What may be resident at the peak of one place, as polynomials by resident."""

    phase: str
    part: str
    layer: int | None
    moments: list[dict[str, dict[str, float]]]

    @property
    def place(self) -> Place:
        """The place itself."""
        return Place(self.phase, self.part, self.layer)


class Recorded(Strict):
    """One recorded step of one depth. `several`: a padded micro batch of at least two samples, else one sample.

    `accumulates`: a later micro batch of its optimizer step. Lengths of the range share the masks that are built.
    """

    several: bool
    accumulates: bool
    layers: int
    seq_len_min: int
    seq_len_max: int | None
    places: list[PlaceMoments]


class StepBytes(Strict):
    """An optimizer at one depth: its states, those of them on the device, and the peaks of its step."""

    state_bytes: int
    paged_bytes: int
    resident_bytes: int
    peaks: list[dict[str, Any]] = Field(description="phase, part, layer, residents")


class Sizes(Strict):
    """What a trace says beside its peaks, for one depth or for the whole model."""

    trainable_parameters: int
    total_parameters: int
    weight_bytes: int
    trainable_bytes: int
    buffer_bytes: int
    layers: int
    layer_weight_bytes: int
    layer_parameters: int
    embedding_bytes: int


class Work(Strict):
    """Of one micro batch of the whole model, by phase: operations of matrix products, and bytes that are written."""

    operations: dict[str, dict[Basis, float]]
    written_bytes: dict[str, dict[Basis, float]]
    attention_layers: int
    attention_width: int = Field(description="query heads times their size: what a pair of tokens costs in attention")
    kernels: int = Field(description="operators that make a tensor, evaluation with them")


class Family(Strict):
    """Everything needed for the account of any member without torch."""

    settings: TraceSettings = Field(description="batch, optimizer and ranks in it are of no meaning")
    hidden_size: int
    layers: int
    depths: list[int] = Field(description="one: the whole model; two: extrapolated to `layers`")
    recorded: list[Recorded]
    steps: dict[Optimizer, list[StepBytes]]
    sizes: list[Sizes]
    layer_input_bytes_per_token: float
    work: Work

    @property
    def root_share(self) -> float:
        """What of the weights lies outside layers: embeddings, output layer, last norm."""
        deepest = self.sizes[-1]
        root = deepest.weight_bytes - deepest.layers * deepest.layer_weight_bytes
        return max(0.0, root / (root + self.layers * deepest.layer_weight_bytes))

    def account(self, settings: TraceSettings) -> Account:
        """The account of a member: batch, accumulation, optimizer and ranks of `settings`; the rest is the family's.

        Lengths are rounded up to a multiple of 128 tokens. Raises `InputError` for what was not recorded.
        """
        asked = _in_granules(settings)
        found = assembled(self.trace(asked), asked.model_copy(update=self._own), self.hidden_size, "derived")
        return found.model_copy(update={"seq_len": settings.seq_len})

    def trace(self, settings: TraceSettings, layers: int | None = None) -> Trace:
        """The trace of a member on one device, with other layers than the family's where it was recorded in depth."""
        asked = _in_granules(settings)
        traces = [self._trace(asked, index) for index in range(len(self.depths))]
        return traces[0] if len(traces) == 1 else continued(traces[0], traces[1], self.depths, layers or self.layers)

    @property
    def _own(self) -> dict[str, Any]:
        """What the family decides of a member's settings."""
        batch = ("micro_batch", "seq_len", "padded", "evaluation_batch", "gradient_accumulation")
        others = {*batch, "optimizer", "gpus", "nodes", "sharding", "offload"}
        return {name: getattr(self.settings, name) for name in type(self.settings).model_fields if name not in others}

    def _trace(self, settings: TraceSettings, index: int) -> Trace:
        several, accumulates = settings.micro_batch > 1, settings.gradient_accumulation > 1
        step = self.steps.get(settings.optimizer)
        peaks = next(
            (
                p
                for r, p in self._peaks
                if r.several == several
                and r.accumulates == accumulates
                and r.layers == self.depths[index]
                and r.seq_len_min <= settings.seq_len
                and (r.seq_len_max is None or settings.seq_len <= r.seq_len_max)
            ),
            None,
        )
        if peaks is None or step is None:
            raise InputError(
                f"micro batch {settings.micro_batch} at {settings.seq_len} tokens with {settings.optimizer} was not "
                "recorded for this family",
                "ask for a single account: it is traced",
            )
        states = step[index].resident_bytes
        found = {p: _with_states(peak, states) for p, peak in peaks.at(settings.micro_batch, settings.seq_len).items()}
        found |= {_place(p): Peak(sum(p["residents"].values()), p["residents"]) for p in step[index].peaks}
        return Trace(
            peaks=found,
            state_bytes=step[index].state_bytes,
            paged_bytes=step[index].paged_bytes,
            layer_input_bytes=round(self.layer_input_bytes_per_token * settings.micro_batch * settings.seq_len),
            **self.sizes[index].model_dump(),
        )

    @cached_property
    def _peaks(self) -> list[tuple[Recorded, Peaks]]:
        return [(r, Peaks({p.place: dense(p.moments) for p in r.places})) for r in self.recorded]


def _in_granules(settings: TraceSettings) -> TraceSettings:
    return settings.model_copy(update={"seq_len": -(-settings.seq_len // GRANULE) * GRANULE})


def _with_states(peak: Peak, states: int) -> Peak:
    if not states:
        return peak
    residents: dict[str, int] = {**peak.residents, "optimizer_states": states}
    return Peak(peak.total + states, residents)


def _place(document: Mapping[str, Any]) -> Place:
    return Place(document["phase"], document["part"], document["layer"])
