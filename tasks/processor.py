"""What something here takes of the processors, and how busy other programs keep them meanwhile: times are only as good
as that."""

from __future__ import annotations

import os
import time
from threading import Lock

import psutil

SHORTEST_S = 1.0
"""Processor time is counted in hundredths of a second; of less than this nothing is said."""

_LOCK = Lock()
_COUNTING: set[Meter] = set()


class Meter:
    """Counts from its making until `stop`. What this process and its ended children used is not of others.

    Where two count at once in this process, as stages side by side do, nothing tells whose processor time it was.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._all, self._busy = _machine()
        self._own = _own()
        self.wall_s = self.cpu_s = 0.0
        self.others: float | None = None
        self.alone = True
        with _LOCK:
            _COUNTING.add(self)
            if len(_COUNTING) > 1:
                for meter in _COUNTING:
                    meter.alone = False

    def stop(self) -> None:
        """Read the counters; a second time changes nothing."""
        with _LOCK:
            if self not in _COUNTING:
                return
            _COUNTING.discard(self)
        self.wall_s = time.monotonic() - self._began
        self.cpu_s = _own() - self._own
        total, busy = _machine()
        passed = total - self._all
        if passed >= SHORTEST_S * (psutil.cpu_count() or 1):
            others = busy - self._busy - self.cpu_s
            self.others = round(min(1.0, max(0.0, others / passed)), 3)

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _machine() -> tuple[float, float]:
    """Seconds of all processors together: (all that passed, those in which somebody computed)."""
    times = psutil.cpu_times()._asdict()
    counted = sum(seconds for name, seconds in times.items() if not name.startswith("guest"))  # user has them already
    return counted, counted - times.get("idle", 0.0) - times.get("iowait", 0.0)


def _own() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
