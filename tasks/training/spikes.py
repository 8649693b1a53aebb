"""Loss spikes: a step whose loss stands far above those before it, by a window that wild values do not move. Pure."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

WINDOW = 64
"""Accepted steps before this one that are looked at."""

FEWEST = 8
"""Accepted steps below which nothing is judged."""

DEVIATIONS = 6.0
"""Robust standard deviations above the median that make a spike: one in a billion steps if noise were normal."""

FLOOR_NATS = 0.1
"""A rise of less is no spike, however quiet the window: late in training the losses of a window are nearly equal."""

MAD_TO_SIGMA = 1.4826
"""The median absolute deviation of normal noise times this is its standard deviation."""

MOST_ROLL_BACKS = 3
"""Roll backs of one training; a further spike stops it, because going back does not help."""


class SpikeWindow:
    """The losses of the last accepted steps. A spike is not accepted: it does not raise the bar for the next one."""

    def __init__(self, losses: Iterable[float] = ()) -> None:
        self._losses: deque[float] = deque(losses, maxlen=WINDOW)

    def threshold(self) -> float | None:
        """The loss above which a step is a spike, in nats per token; null while too few steps are known."""
        if len(self._losses) < FEWEST:
            return None
        middle = statistics.median(self._losses)
        spread = MAD_TO_SIGMA * statistics.median(abs(loss - middle) for loss in self._losses)
        return middle + max(DEVIATIONS * spread, FLOOR_NATS)

    def is_spike(self, loss: float) -> bool:
        """Whether a loss is above the threshold; one that is not is accepted into the window."""
        limit = self.threshold()
        if limit is not None and loss > limit:
            return True
        self._losses.append(loss)
        return False


def accepted_losses(metrics: Iterable[Mapping[str, Any]]) -> list[float]:
    """The losses of `metrics.jsonl` that a window holds: of every step that was neither a spike nor passed over."""
    return [float(r["loss"]) for r in metrics if not r.get("spike") and r["loss"] is not None]


def passed_over_steps(roll_backs: Iterable[Mapping[str, Any]]) -> frozenset[int]:
    """Steps whose gradient is not used: of every roll back, those from its checkpoint to the spike."""
    return frozenset(s for r in roll_backs for s in range(r["to_step"] + 1, r["step"] + 1))
