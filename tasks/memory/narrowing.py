"""What a narrower model would hold, by the trace of the whole one: for plans, which have no trace of their own. Pure.

Of what a layer takes while it works, norms, hidden states and the inputs of adapters are as wide on every tensor rank;
the rest is divided. How much is whole was traced for Llama's layers of several widths (`WHOLE`): other layers differ
in it, and so `gatewright estimate`, which traces a rank, is what a purchase should be decided by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tasks.memory.fsdp2 import WORKSPACES
from tasks.memory.ranks import BACKWARD
from tasks.memory.settings import TraceSettings
from tasks.memory.timeline import Peak, Place
from tasks.memory.traced import Trace

WHOLE = {"forward": 6.0, "backward": 18.0, "recompute": 18.0, "evaluate": 6.0}
"""Hidden states in 16 bits that a layer at work takes on every rank: 3 to 8 forward, 11 to 19 backward."""
WHOLE_OF_ADAPTERS = 25.0
"""Backward with adapters outside of autocast: each widens its own input to fp32."""
ADAPTER_SHARE = 0.5
"""Of an adapter's two matrices one is whole, the one on the side that is not divided."""


def narrower(trace: Trace, settings: TraceSettings, hidden_size: int) -> Trace:
    """The trace of `grid.of_one_device`, as far as that of the whole width tells."""
    ranks = settings.tensor_parallel
    if ranks == 1:
        return trace
    trains_all = trace.trainable_parameters == trace.total_parameters
    adapters = 0.0 if trains_all else trace.trainable_bytes / max(1, trace.layers)
    whole_share = ADAPTER_SHARE + (1 - ADAPTER_SHARE) / ranks
    layer = (trace.layer_weight_bytes - adapters) / ranks + adapters * whole_share
    outside = trace.weight_bytes - trace.buffer_bytes - trace.layers * trace.layer_weight_bytes
    trained = trace.layers * layer + outside if trains_all else trace.trainable_bytes * whole_share
    share = trained / max(1, trace.trainable_bytes)
    amp = settings.compute.startswith("amp")
    working = _Working(
        ranks=ranks,
        share=share,
        hidden=2.0 * settings.micro_batch * settings.seq_len * hidden_size,
        adapting=not trains_all and not amp,
        copies=trace.layers * (trace.layer_weight_bytes - layer) / 2 if amp and settings.weights == "fp32" else 0.0,
    )
    peaks = {place: working.at(place, trace.peaks) for place in trace.peaks}
    return replace(
        trace,
        peaks=peaks,
        weight_bytes=round(trace.buffer_bytes + trace.layers * layer + outside),
        layer_weight_bytes=round(layer),
        trainable_bytes=round(trained),
        trainable_parameters=round(trace.trainable_parameters * share),
        total_parameters=round(trace.trainable_parameters * share) if trains_all else trace.total_parameters,
        state_bytes=round(trace.state_bytes * share),
        paged_bytes=round(trace.paged_bytes * share),
    )


@dataclass(frozen=True)
class _Working:
    """What is divided of a place: trained tensors by `share`, `copies` of other ranks' weights that autocast keeps."""

    ranks: int
    share: float
    hidden: float
    adapting: bool
    copies: float

    def at(self, place: Place, peaks: Mapping[Place, Peak]) -> Peak:
        """The peak of a place of the narrower model."""
        parts = peaks[place].residents
        found: dict[str, int] = dict(parts)
        if "gradients" in parts:
            found["gradients"] = round(parts["gradients"] * self.share)
        temporary = parts.get("temporary", 0)
        kept = min(temporary, WORKSPACES)
        if place.phase == "optimizer":
            found["temporary"] = round(kept + (temporary - kept) * self.share)
        elif place.layer is not None:
            inputs = _inputs(place, peaks)
            busy = parts.get("activations", 0) - inputs + temporary - kept
            whole = min(busy, self.hidden * self._whole(place))
            found["activations"] = round(inputs)
            found["temporary"] = round(kept + whole + (busy - whole) / self.ranks)
        elif place.phase in ("evaluate", "forward", "loss"):
            found["temporary"] = round(max(kept, temporary - self.copies))
        return Peak(sum(found.values()), found)

    def _whole(self, place: Place) -> float:
        return WHOLE_OF_ADAPTERS if self.adapting and place.phase in BACKWARD else WHOLE[place.phase]


def _inputs(place: Place, peaks: Mapping[Place, Peak]) -> int:
    """What is kept for other layers: their inputs, whole on every rank."""
    activations, first = peaks[place].residents.get("activations", 0), peaks.get(Place(place.phase, "layer", 0))
    if place.phase not in BACKWARD or first is None:
        return activations
    return max(0, activations - first.residents.get("activations", 0))
