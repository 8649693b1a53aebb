"""The numbers and the label of every sensor window, computed again from the cells of its rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.verify.data_words import same_code
from tasks.verify.findings import CLAIMS, Findings

F64 = npt.NDArray[np.float64]
NAMES = ("mean", "std", "minimum", "maximum", "slope_per_s", "rms")
_RELATIVE, _OF_THE_LARGEST = 1e-6, 1e-9
"""Two ways of summing differ by less; a digit that somebody changed differs by more."""
_WORDS = {
    "en": (
        "Sensors over {:g} s:\n",
        "{}: mean {:.4g}, min {:.4g}, max {:.4g}, slope {:.3g} per minute",
        "; ",
    ),
    "zh": (
        "{:g} 秒内的传感器数据：\n",
        "{}：均值 {:.4g}，最小 {:.4g}，最大 {:.4g}，每分钟变化 {:.3g}",
        "；",
    ),
}


class WindowRows:
    """The rows of a log that are in windows: time in seconds, and the cells time, event, channels (wide: samples)."""

    def __init__(
        self,
        times: Sequence[float],
        cells: Sequence[Sequence[str]],
        channels: Sequence[str],
        horizon_s: float,
        wide: Mapping[str, Any] | None,
    ) -> None:
        self.times, self.cells, self.channels = times, cells, channels
        self.horizon_s, self.wide = horizon_s, wide
        self._events = (
            [] if wide else sorted((t, row[1].strip()) for t, row in zip(times, cells, strict=True) if row[1].strip())
        )
        # the name of several columns reads as empty: which one is meant cannot be told here
        self._unread = (
            frozenset() if wide else frozenset(i for i in range(len(channels)) if not any(row[2 + i] for row in cells))
        )
        self._event_times = np.asarray([t for t, _ in self._events], np.float64)

    def compare(
        self,
        source: str,
        locations: Sequence[str],
        bounds: Sequence[slice],
        stored: Iterable[Mapping[str, Any]],
        findings: Findings,
    ) -> None:
        """Name every window whose numbers or label are not those of its rows."""
        found: defaultdict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
        for row in stored:
            found[row["location"]][row["channel"]] = row
        for location, part in zip(locations, bounds, strict=True):
            mine = found[location]
            for number, channel in enumerate(self.channels):
                if channel not in mine or not self._same(mine[channel], number, part):
                    findings.add(CLAIMS, f"{source}|{location}", f"the numbers of {channel} are not those of its rows")
            labels = {str(row["fault_type"]) for row in mine.values()}
            if len(labels) != 1 or not same_code(self._label(part), labels.pop()):
                findings.add(CLAIMS, f"{source}|{location}", "its label is not the next event of the log")

    def _label(self, part: slice) -> str:
        times = self.times[part]
        low = int(np.searchsorted(self._event_times, times[0], side="left"))
        high = int(np.searchsorted(self._event_times, times[-1] + self.horizon_s, side="right"))
        return self._events[low][1] if low < high else ""

    def _same(self, stored: Mapping[str, Any], channel: int, part: slice) -> bool:
        if self.wide:
            values = _numbers(self.cells[part.start])
            times = np.arange(len(values)) * float(self.wide["seconds_per_row"]) / max(1, len(values))
        else:
            if channel in self._unread:
                return True
            values = _numbers([row[2 + channel] for row in self.cells[part]])
            times = np.asarray(self.times[part], np.float64)
        given = np.isfinite(values)
        if not given.any():
            return all(stored[name] is None for name in NAMES)
        times, values = times[given], values[given]
        largest = float(np.abs(values).max())
        return all(
            _alike(stored[name], mine, largest) for name, mine in zip(NAMES, figures(times, values), strict=True)
        )


def _alike(stored: float | None, mine: float, largest: float) -> bool:
    return stored is not None and math.isclose(stored, mine, rel_tol=_RELATIVE, abs_tol=_OF_THE_LARGEST * largest)


def figures(times: F64, values: F64) -> list[float]:
    """Mean, standard deviation of the population, extremes, least-squares slope per second, root mean square.

    Values are scaled by a power of two first, so that their squares stay finite.
    """
    scale = 2.0 ** np.frexp(np.abs(values).max() or 1.0)[1]
    small = values / scale
    mean = small.sum() / len(small)
    spread = times - times.sum() / len(times)
    steepness = float((spread * spread).sum())
    slope = float((spread * small).sum()) / steepness if steepness else 0.0
    deviation = math.sqrt(float(((small - mean) ** 2).sum()) / len(small))
    square = math.sqrt(float((small * small).sum()) / len(small))
    return [mean * scale, deviation * scale, values.min(), values.max(), slope * scale, square * scale]


def _numbers(cells: Sequence[str]) -> F64:
    try:
        found = np.asarray(cells, dtype="U").astype(np.float64)
    except ValueError:
        found = np.asarray([_number(cell) for cell in cells], np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def _number(text: str) -> float:
    try:
        return float(text.strip())
    except ValueError:
        return math.nan


def in_words(windows: Iterable[Mapping[str, Any]], window_s: float, language: str) -> Mapping[tuple[str, str], str]:
    """What a sample says of each window, by (source, location): its stored numbers in the documented form."""
    head, channel, glue = _WORDS["zh" if language == "zh" else "en"]
    said: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for w in windows:
        if w["mean"] is not None:
            numbers = (w["mean"], w["minimum"], w["maximum"], w["slope_per_s"] * 60)
            said[w["source"], w["location"]].append(channel.format(w["channel"], *numbers))
    return {place: head.format(window_s) + glue.join(parts) for place, parts in said.items()}
