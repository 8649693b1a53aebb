"""Whole-model peaks from two shallow traces: every place is linear in the number of layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tasks.memory.model import PER_LAYER_KEYS, configuration
from tasks.memory.settings import TraceSettings
from tasks.memory.sizes import Trace
from tasks.memory.timeline import Peak, Place
from tasks.memory.trace import trace

WHOLE_UP_TO = 8
"""Models of at most so many layers are traced whole."""


@dataclass(frozen=True)
class Depths:
    """The depths to trace; one alone is the whole model."""

    traced: tuple[int, ...]
    wanted: int


def depths(settings: TraceSettings) -> Depths:
    """Two depths whose layer pattern continues to the wanted one, or the wanted one itself.

    A pattern of period p needs 2p layers, so that each kind of layer stands in front and at the back.
    """
    config = configuration(settings)
    wanted = int(config.num_hidden_layers)
    patterns = [v for k in PER_LAYER_KEYS if isinstance(v := getattr(config, k, None), list) and len(v) == wanted]
    period = _period(list(zip(*patterns, strict=True))) if patterns else 1
    dense_first = int(getattr(config, "first_k_dense_replace", 0) or 0)
    shallow = wanted % period + max(2, 2 * period if period > 1 else 2) + (2 * dense_first if dense_first else 0)
    deep = shallow + (period if period > 1 else 2)
    if wanted <= max(WHOLE_UP_TO, deep):
        return Depths((wanted,), wanted)
    return Depths((shallow, deep), wanted)


def _period(pattern: list[tuple[object, ...]]) -> int:
    """The smallest period of a list, its length where there is none."""
    for period in range(1, len(pattern)):
        if all(pattern[i] == pattern[i - period] for i in range(period, len(pattern))):
            return period
    return len(pattern)


def folded(settings: TraceSettings, optimizer_step: bool = True) -> Trace:
    """Peaks of the whole model, each place extrapolated by itself."""
    plan = depths(settings)
    traces = [trace(settings, depth, optimizer_step) for depth in plan.traced]
    if len(traces) == 1:
        return traces[0]
    low, high = traces
    far = (plan.wanted - plan.traced[0]) / (plan.traced[1] - plan.traced[0])

    def line(a: int, b: int) -> int:
        return round(a + (b - a) * far)

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
    )


def _extrapolated(low: Peak, high: Peak, far: float) -> Peak:
    kinds = {*low.residents, *high.residents}
    residents: dict[str, int] = {
        k: max(0, round(low.residents.get(k, 0) + (high.residents.get(k, 0) - low.residents.get(k, 0)) * far))
        for k in kinds
    }
    return Peak(round(low.total + (high.total - low.total) * far), residents)


def by_phase(peaks: Mapping[Place, Peak]) -> dict[str, Peak]:
    """The highest place of every phase."""
    best: dict[str, Peak] = {}
    for place, peak in peaks.items():
        if place.phase in ("build", "end"):
            continue
        if place.phase not in best or peak.total > best[place.phase].total:
            best[place.phase] = peak
    return best
