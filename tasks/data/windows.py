"""Readings of a sensor log into windows that never span a gap, and each window into numbers per channel. Pure."""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

GAP_FACTOR = 5.0
"""A step longer than this many median steps is a gap; so is a clock that runs backwards."""
FULL_SHARE = 0.8
"""A window whose rows cover less of its length than this is too short to describe."""
_SQUARES_OVERFLOW = 1e140


@dataclass(frozen=True, slots=True)
class Reading:
    """One row: seconds since the epoch (UTC), a value per channel (NaN where empty), a fault code or '', its text."""

    time_s: float
    values: tuple[float, ...]
    event: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive readings of one segment, `number` from 1 over the file."""

    number: int
    segment: int
    readings: tuple[Reading, ...]

    @property
    def start_s(self) -> float:
        """Time of the first reading."""
        return self.readings[0].time_s

    @property
    def end_s(self) -> float:
        """Time of the last reading."""
        return self.readings[-1].time_s


def windows_of(readings: Sequence[Reading], window_s: float) -> list[Window]:
    """Windows of `window_s` from the start of each segment; the last of a segment may be shorter."""
    step = median_step(readings)
    result: list[Window] = []
    segment, current = 1, [readings[0]] if readings else []
    for before, reading in itertools.pairwise(readings):
        gap = reading.time_s - before.time_s
        if gap > GAP_FACTOR * step or gap <= 0:
            result.append(Window(len(result) + 1, segment, tuple(current)))
            segment, current = segment + 1, []
        elif reading.time_s - current[0].time_s >= window_s:
            result.append(Window(len(result) + 1, segment, tuple(current)))
            current = []
        current.append(reading)
    if current:
        result.append(Window(len(result) + 1, segment, tuple(current)))
    return result


def median_step(readings: Sequence[Reading]) -> float:
    """Median time between readings, in seconds; steps that do not go forward are left out."""
    steps = [b.time_s - a.time_s for a, b in itertools.pairwise(readings) if b.time_s > a.time_s]
    return statistics.median(steps) if steps else 1.0


def describe(times: Sequence[float], values: Sequence[float]) -> dict[str, float] | None:
    """mean, std (population), minimum, maximum, slope per second (least squares) and rms; None without a value."""
    t, v = np.asarray(times, dtype=np.float64), np.asarray(values, dtype=np.float64)
    finite = np.isfinite(v)
    if not finite.any():
        return None
    t, v = t[finite], v[finite]
    lowest, highest = float(v.min()), float(v.max())
    largest = max(abs(lowest), abs(highest))
    scale = largest if largest > _SQUARES_OVERFLOW else 1.0
    v = v / scale
    mean = float(v.mean())
    around, away = t - t.mean(), v - mean
    spread = float(around @ around)
    return {
        "mean": mean * scale,
        "std": math.sqrt(float(away @ away) / len(v)) * scale,
        "minimum": lowest,
        "maximum": highest,
        "slope_per_s": float(around @ away) / spread * scale if spread else 0.0,
        "rms": math.sqrt(float(v @ v) / len(v)) * scale,
    }


@dataclass(frozen=True, slots=True)
class Events:
    """Fault events of a log in the order of time."""

    times: tuple[float, ...]
    codes: tuple[str, ...]

    @classmethod
    def of(cls, readings: Sequence[Reading]) -> Events:
        """The readings that carry a fault code."""
        found = sorted((r.time_s, r.event) for r in readings if r.event)
        return cls(tuple(t for t, _ in found), tuple(code for _, code in found))

    def within(self, window: Window, horizon_s: float) -> list[tuple[float, str]]:
        """Events from the start of a window to `horizon_s` after its end, the next one first."""
        first = bisect.bisect_left(self.times, window.start_s)
        last = bisect.bisect_right(self.times, window.end_s + horizon_s)
        return list(zip(self.times[first:last], self.codes[first:last], strict=True))


def is_too_short(window: Window, step_s: float, window_s: float) -> bool:
    """Whether a window covers too little of its length: a gap, the end of the log, or a rate too low for it."""
    return window.end_s - window.start_s + step_s < FULL_SHARE * window_s
