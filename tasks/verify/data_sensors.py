"""Sensor logs read again: every row is in one window or has a fate of its own, no window spans a gap, times are UTC.

Local times become UTC by trying the offsets that the zone has around that day and keeping those that lead back.
"""

from __future__ import annotations

import datetime as dt
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from tasks.verify import data_raw as raw
from tasks.verify.data_windows import WindowRows
from tasks.verify.findings import Findings

if TYPE_CHECKING:
    from tasks.verify.data_rows import RawFiles

GAP_STEPS = 5.0
_DIGITS = re.compile(r"((?:19|20|21)\d\d)(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d)?)?", re.ASCII)
_WRITTEN = re.compile(
    r"(\d{4})(?:[-/.]|年)(\d{1,2})(?:[-/.]|月)(\d{1,2})日?(?:[T\s]*(\d{1,2}):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?)?"
    r"\s*(Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
_YEAR_2200 = 7_258_118_400
_EPOCH = dt.datetime(1970, 1, 1)


def sensor_faults(files: RawFiles, findings: Findings) -> int:
    """Rows of sensor logs that are in no window or in two, windows that span a gap or start at another time.

    Numbers and labels of windows that are not those of their rows go to the findings.
    """
    return sum(_faults_of(files, name, path, source, findings) for name, path, source in files.files("sensor_logs"))


def _faults_of(files: RawFiles, name: str, path: Path, source: Mapping[str, Any], findings: Findings) -> int:
    stored = files.windows_of.get(name, [])
    in_order = sorted({w["location"]: w for w in stored}.values(), key=lambda w: int(w["location"].rpartition("#")[2]))
    left_out = files.rows_in_no_window.get(name, frozenset())
    zone = ZoneInfo(str(source.get("time_zone") or files.spec.get("time_zone") or "UTC"))
    wide, encoding = source.get("wide"), files.encoding(name)
    channels = list(dict.fromkeys(str(w["channel"]) for w in stored))
    cells = raw.wide_rows(name, path, encoding) if wide else raw.sensor_cells(name, path, source, encoding, channels)
    times = list(_wide_times(len(cells), wide, zone) if wide else (moment(row[0]) for row in cells))
    wrong: int = abs(len(times) - sum(w["rows"] for w in in_order) - len(left_out))
    here = [number for number in range(len(times)) if number + 1 not in left_out]
    used = list(_in_zone([times[number] for number in here], zone))
    wrong += len(here) - len(used)  # a row in a window without a time that can be read
    usual = 0.0 if wide else _usual_step(used)
    bounds: list[slice] = []
    for window in in_order:
        start = bounds[-1].stop if bounds else 0
        bounds.append(slice(start, start + window["rows"]))
        part = used[bounds[-1]]
        spans = any(b - a > GAP_STEPS * usual or b <= a for a, b in pairwise(part))
        wrong += spans or not part or abs(part[0] - window["start"].timestamp()) >= 0.01
    if not wrong:  # else it is not sure which rows are in which window
        log = WindowRows(used, [cells[n] for n in here], channels, files.parameters.fault_horizon_s, wide)
        log.compare(name, [w["location"] for w in in_order], bounds, stored, findings)
    return wrong


def _usual_step(times: Sequence[float]) -> float:
    steps = [b - a for a, b in pairwise(times) if b > a]
    return statistics.median(steps) if steps else 1.0


Moment = dt.datetime | float | None
"""A local time without offset, seconds since the epoch, or nothing."""


def _wide_times(rows: int, wide: Mapping[str, Any], zone: ZoneInfo) -> Iterator[Moment]:
    """The start of every row of a log that has no times: row length by row number."""
    (start,) = _in_zone([moment(str(wide["start"]))], zone)
    yield from (start + number * float(wide["seconds_per_row"]) for number in range(rows))


def moment(text: str) -> Moment:
    """What a cell says of a time: digits, an epoch by its size, or a written date."""
    text = text.strip()
    digits = _DIGITS.fullmatch(text)
    try:
        if digits:
            year, month, day, hour, minute, second = (int(part or 0) for part in digits.groups())
            return dt.datetime(year, month, day, hour, minute, second)
        value = float(text)
    except ValueError:
        return None if digits else _written(text)
    while 1e11 <= value < 1e20:
        value /= 1000
    return value if 1e8 < value < _YEAR_2200 else None


def _written(text: str) -> Moment:
    match = _WRITTEN.fullmatch(text)
    if not match:
        return None
    *parts, fraction, offset = match.groups()
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in parts)
        local = dt.datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None
    local += dt.timedelta(microseconds=int(((fraction or "") + "000000")[:6]))
    if not 1900 <= local.year <= 2199:
        return None
    if not offset:
        return local
    seconds = (local - _EPOCH).total_seconds()
    if offset != "Z":
        digits = offset[1:].replace(":", "")
        shift = int(digits[:2]) * 3600 + int(digits[2:]) * 60
        seconds -= shift if offset[0] == "+" else -shift
    return seconds


def seconds_of(text: str, zone: ZoneInfo) -> float | None:
    """Seconds since the epoch of one cell, or nothing."""
    return next(_in_zone([moment(text)], zone), None)


def _in_zone(moments: Sequence[Moment], zone: ZoneInfo) -> Iterator[float]:
    """Seconds since the epoch. Of two that a local time can mean, the first that is after the time before it."""
    before: float | None = None
    for found in moments:
        if found is None:
            continue
        if isinstance(found, dt.datetime):
            meant = _candidates(found, zone)
            if not meant:
                continue
            before = next((s for s in meant if before is None or s > before), meant[-1])
        else:
            before = found
        yield before


def _candidates(local: dt.datetime, zone: ZoneInfo) -> list[float]:
    """Every moment at which the clocks of the zone show this local time: none, one or two."""
    found = set()
    for day in (-1, 1):
        around = (local + dt.timedelta(days=day)).replace(tzinfo=zone).utcoffset()
        assert around is not None
        utc = (local - around).replace(tzinfo=dt.UTC)
        if utc.astimezone(zone).replace(tzinfo=None, fold=0) == local:
            found.add(utc.timestamp())
    return sorted(found)
