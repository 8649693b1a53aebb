"""The times of a sensor log as seconds since the epoch, in UTC. Pure.

Local times are read in the zone of the spec. When the clocks of a zone go back, an hour of local times happens twice:
the order of the rows says which one is meant. When they go forward, an hour never happens: such a time is an error.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from zoneinfo import ZoneInfo

_EARLIEST_S, _LATEST_S = -2_208_988_800.0, 7_258_118_400.0
"""1900 and 2200: times outside are mistakes, and some file formats cannot hold them."""
_LAYOUTS = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_CHINESE_DATE = re.compile(r"(\d{4})年(\d{1,2})月(\d{1,2})日?\s*")
_SHORT_DATE = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?=$|[T\s])")


@dataclass(slots=True)
class Clock:
    """Reads the times of one log in the order of its rows, and counts what the zone made of them."""

    zone: ZoneInfo
    ambiguous: int = 0
    last_s: float | None = None

    def read(self, text: str) -> tuple[float | None, str]:
        """(seconds since the epoch, or None; why there is none)."""
        found = _moment(text.strip())
        if found is None:
            return None, "no_readable_time"
        if isinstance(found, float):
            self.last_s = found
            return found, ""
        if found.tzinfo is None:
            first, second = (found.replace(tzinfo=self.zone, fold=fold).timestamp() for fold in (0, 1))
            if first > second:
                return None, "time_does_not_exist"
            if first < second:
                self.ambiguous += 1
                first = second if self.last_s is not None and self.last_s >= first else first
        else:
            first = found.timestamp()
        self.last_s = first
        return first, ""


def parse_time(text: str, zone: ZoneInfo) -> float | None:
    """Seconds since the epoch of a local time in `zone`, a time with offset, or an epoch in s, ms, us or ns.

    Local times are ISO-like, Chinese (`2026年1月31日 12:00`) or compact (`20260131`, `202601311200`, `20260131120000`).
    None for what is no time, does not exist in the zone, or is outside the years 1900 to 2199.
    """
    return Clock(zone).read(text)[0]


def _moment(text: str) -> dt.datetime | float | None:
    moment = _compact(text)
    if moment is None:
        try:
            seconds = _epoch_seconds(float(text))
            return seconds if seconds is not None and _EARLIEST_S <= seconds < _LATEST_S else None
        except ValueError:
            pass
        try:
            moment = dt.datetime.fromisoformat(_iso(text))
        except ValueError:
            return None
    return moment if 1900 <= moment.year < 2200 else None


def _iso(text: str) -> str:
    """The ISO form of a date written with slashes, dots or Chinese signs and with or without leading zeros."""
    text = _CHINESE_DATE.sub(lambda m: f"{m[1]}-{m[2]}-{m[3]} ", text).strip()
    text = _SHORT_DATE.sub(lambda m: f"{m[1]}-{int(m[2]):02d}-{int(m[3]):02d}", text)
    return re.sub(r"(?<=\s)(\d):", r"0\1:", text.replace("Z", "+00:00"))


def _compact(text: str) -> dt.datetime | None:
    """A date, with or without hours and minutes or seconds, in nothing but digits."""
    layout = _LAYOUTS.get(len(text))
    if layout is None or not re.fullmatch("(?:19|20|21)[0-9]+", text):
        return None
    try:
        return dt.datetime.strptime(text, layout)
    except ValueError:
        return None


def _epoch_seconds(number: float) -> float | None:
    """An epoch by its size: s below 1e11, ms below 1e14, us below 1e17, ns below 1e20."""
    for limit, unit in ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6), (1e20, 1e9)):
        if number < limit:
            return number / unit if number > 1e8 else None
    return None
