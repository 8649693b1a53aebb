"""How busy other programs kept the processors while something ran here: times are only as good as that."""

from __future__ import annotations

import os

import psutil

SHORTEST_S = 1.0
"""Processor time is counted in hundredths of a second; of less than this nothing is said."""


class OtherPrograms:
    """Counts from its making on. What this process and its ended children used is not of others."""

    def __init__(self) -> None:
        self._all, self._busy = _machine()
        self._own = _own()

    def share(self) -> float | None:
        """The share of the processors' time that other programs used since, 0 to 1; null where it was too short."""
        total, busy = _machine()
        passed = total - self._all
        if passed < SHORTEST_S * (psutil.cpu_count() or 1):
            return None
        others = busy - self._busy - (_own() - self._own)
        return round(min(1.0, max(0.0, others / passed)), 3)


def _machine() -> tuple[float, float]:
    """Seconds of all processors together: (all that passed, those in which somebody computed)."""
    times = psutil.cpu_times()._asdict()
    counted = sum(seconds for name, seconds in times.items() if not name.startswith("guest"))  # user has them already
    return counted, counted - times.get("idle", 0.0) - times.get("iowait", 0.0)


def _own() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
