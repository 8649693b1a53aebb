"""Whole-model peaks from two shallow traces: every place is linear in the number of layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.memory.model import PER_LAYER_KEYS, configuration
from tasks.memory.settings import TraceSettings
from tasks.memory.trace import trace, trace_both
from tasks.memory.traced import Trace, continued

WHOLE_UP_TO = 8
"""Models of at most so many layers are traced whole."""
SHARDED_FROM = 4
"""Layers of the shallower trace of a shard: the first and the last gather less beside them than their neighbours."""


@dataclass(frozen=True)
class Depths:
    """The depths to trace; one alone is the whole model."""

    traced: tuple[int, ...]
    wanted: int


def depths(settings: TraceSettings, at_least: int = 2) -> Depths:
    """Two depths whose layer pattern continues to the wanted one, or the wanted one itself.

    A pattern of period p needs 2p layers, so that each kind of layer stands in front and at the back.
    """
    config = configuration(settings)
    wanted = int(config.num_hidden_layers)
    patterns = [v for k in PER_LAYER_KEYS if isinstance(v := getattr(config, k, None), list) and len(v) == wanted]
    period = _period(list(zip(*patterns, strict=True))) if patterns else 1
    dense_first = int(getattr(config, "first_k_dense_replace", 0) or 0)
    shallow = wanted % period + max(at_least, 2 * period if period > 1 else 2) + (2 * dense_first if dense_first else 0)
    deep = shallow + period
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
    return _whole([trace(settings, depth, optimizer_step) for depth in plan.traced], plan)


def folded_sharded(settings: TraceSettings) -> Trace:
    """The same of one rank under FSDP, whole where its trainer is another. Raises what `trace_sharded` raises."""
    from tasks.memory.policy import trace_own
    from tasks.memory.sharded import trace_sharded

    if settings.generation.own is not None:
        return trace_own(settings)
    plan = depths(settings, SHARDED_FROM)
    return _whole([trace_sharded(settings, depth) for depth in plan.traced], plan)


def folded_both(settings: TraceSettings, optimizer_step: bool = True) -> tuple[Trace, Trace]:
    """The same of a step of one micro batch and of a step of several, for the cost of one of them."""
    plan = depths(settings)
    alone, several = zip(*(trace_both(settings, depth, optimizer_step) for depth in plan.traced), strict=True)
    return _whole(alone, plan), _whole(several, plan)


def _whole(traces: Sequence[Trace], plan: Depths) -> Trace:
    return traces[0] if len(traces) == 1 else continued(traces[0], traces[1], plan.traced, plan.wanted)
