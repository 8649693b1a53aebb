"""What one trace brings, and a whole model from two shallow ones: every place is linear in depth. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tasks.memory.timeline import Peak, Place


@dataclass
class Trace:
    """Peaks by place, and what the account needs beside them. Bytes, except the two counts."""

    peaks: dict[Place, Peak]
    trainable_parameters: int
    total_parameters: int
    weight_bytes: int
    trainable_bytes: int
    state_bytes: int
    paged_bytes: int
    buffer_bytes: int = 0
    layers: int = 0
    layer_weight_bytes: int = 0
    layer_parameters: int = 0
    layer_input_bytes: int = 0
    embedding_bytes: int = 0
    """The input embedding, where the output layer does not share it."""
    of_one_rank: bool = False
    """Whether peaks are those of one rank of several; sizes are those of the whole model in any case."""
    streams: dict[str, dict[Place, int]] = field(default_factory=dict)
    """Peaks by stream, where ranks share work: what one stream freed no other can take. Empty: there is one stream."""
    gaps_bytes: int = 0
    """Free memory between blocks that fits no request, as the caching allocator leaves it; nought if not followed."""

    @property
    def reserved_bytes(self) -> int:
        """The peaks of all streams, at whatever place each has it; nought with one stream."""
        return sum(max(places.values()) for places in self.streams.values()) + self.gaps_bytes


def depth_factor(traced: Sequence[int], wanted: int) -> float:
    """How far `wanted` layers are from the first traced depth, in distances between the two traced ones."""
    return (wanted - traced[0]) / (traced[1] - traced[0])


def on_line(low: float, high: float, far: float) -> float:
    """What is linear in depth, `far` along from `low` to `high`."""
    return low + (high - low) * far


def continued(low: Trace, high: Trace, traced: Sequence[int], wanted: int) -> Trace:
    """The trace of `wanted` layers from those with `traced` layers, each place and size extrapolated by itself."""
    far = depth_factor(traced, wanted)

    def line(a: int, b: int) -> int:
        return round(on_line(a, b, far))

    return Trace(
        peaks={p: _extrapolated(low.peaks[p], high.peaks[p], far) for p in low.peaks if p in high.peaks},
        trainable_parameters=line(low.trainable_parameters, high.trainable_parameters),
        total_parameters=line(low.total_parameters, high.total_parameters),
        weight_bytes=line(low.weight_bytes, high.weight_bytes),
        trainable_bytes=line(low.trainable_bytes, high.trainable_bytes),
        state_bytes=line(low.state_bytes, high.state_bytes),
        paged_bytes=line(low.paged_bytes, high.paged_bytes),
        buffer_bytes=line(low.buffer_bytes, high.buffer_bytes),
        layers=line(low.layers, high.layers),
        layer_weight_bytes=high.layer_weight_bytes,
        layer_parameters=high.layer_parameters,
        layer_input_bytes=high.layer_input_bytes,
        embedding_bytes=high.embedding_bytes,
        of_one_rank=high.of_one_rank,
        streams={
            name: {p: line(low.streams[name].get(p, 0), size) for p, size in places.items() if p in low.peaks}
            for name, places in high.streams.items()
            if name in low.streams
        },
        gaps_bytes=high.gaps_bytes,
    )


def _extrapolated(low: Peak, high: Peak, far: float) -> Peak:
    kinds = {*low.residents, *high.residents}
    residents: dict[str, int] = {
        k: max(0, round(on_line(low.residents.get(k, 0), high.residents.get(k, 0), far))) for k in kinds
    }
    return Peak(round(on_line(low.total, high.total, far)), residents)


def by_phase(peaks: Mapping[Place, Peak]) -> dict[str, Peak]:
    """The highest place of every phase."""
    best: dict[str, Peak] = {}
    for place, peak in peaks.items():
        if place.phase in ("build", "end"):
            continue
        if place.phase not in best or peak.total > best[place.phase].total:
            best[place.phase] = peak
    return best
