"""Sensor logs: rows into windows that never span a gap, numbers per channel, labels by the fault events that follow."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from specs.base import Language
from specs.errors import SourceError
from specs.project import SensorLogs
from tasks.data.encoding import decode
from tasks.data.files import read_bytes
from tasks.data.records import Draft, Intake, SourceFile, Unit
from tasks.data.tables import Table, find_tables, normal, read_delimited
from tasks.data.tabular import CodeTable, decoding_entry
from tasks.data.wording import words

GAP_FACTOR = 5.0
"""A step longer than this many median steps is a gap; so is a clock that runs backwards."""
_EARLIEST_S, _LATEST_S = -2_208_988_800.0, 7_258_118_400.0
"""1900 and 2200: times outside are mistakes, and some file formats cannot hold them."""
FULL_SHARE = 0.8
"""A window whose rows cover less of its length than this is too short to describe."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One row: seconds since the epoch (UTC), a value per channel (NaN where empty), a fault code or ''."""

    time_s: float
    values: tuple[float, ...]
    event: str
    text: str


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


def parse_time(text: str, zone: ZoneInfo) -> float | None:
    """Seconds since the epoch of a local time in `zone`, a time with offset, or an epoch in s, ms, us or ns.

    Local times are ISO-like or compact (`20260131`, `202601311200`, `20260131120000`). None for what is no time or
    outside the years 1900 to 2199.
    """
    text = text.strip()
    moment = _compact(text)
    if moment is None:
        try:
            seconds = _epoch_seconds(float(text))
            return seconds if seconds is not None and _EARLIEST_S <= seconds < _LATEST_S else None
        except ValueError:
            pass
        try:
            moment = dt.datetime.fromisoformat(text.replace("/", "-").replace("Z", "+00:00"))
        except ValueError:
            return None
    if not 1900 <= moment.year < 2200:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


def _compact(text: str) -> dt.datetime | None:
    """A date, with or without hours and minutes or seconds, in nothing but digits."""
    layout = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}.get(len(text))
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


def windows_of(readings: Sequence[Reading], window_s: float) -> list[Window]:
    """Windows of `window_s` from the start of each segment; the last of a segment may be shorter. Pure."""
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
    pairs = [(t, v) for t, v in zip(times, values, strict=True) if math.isfinite(v)]
    if not pairs:
        return None
    finite = [v for _, v in pairs]
    mean, at = statistics.fmean(finite), statistics.fmean(t for t, _ in pairs)
    spread = sum((t - at) ** 2 for t, _ in pairs)
    slope = sum((t - at) * (v - mean) for t, v in pairs) / spread if spread else 0.0
    return {
        "mean": mean,
        "std": statistics.pstdev(finite, mean),
        "minimum": min(finite),
        "maximum": max(finite),
        "slope_per_s": slope,
        "rms": math.sqrt(statistics.fmean(v * v for v in finite)),
    }


@dataclass(frozen=True, slots=True)
class SensorRules:
    """What the approved parameters and the spec say about windows."""

    window_s: float
    horizon_s: float
    language: Language
    time_zone: str


def read_sensor_log(file: SourceFile, source: SensorLogs, intake: Intake, codes: CodeTable, rules: SensorRules) -> None:
    """Windows of a log: numbers for all, a text sample only where a fault with a known remedy follows."""
    decoded = decode(read_bytes(file), file.name, source.encoding)
    grid = read_delimited(decoded, file.name)
    mapped = {name: name for name in (source.timestamp, *source.channels, *filter(None, [source.event]))}
    table, _ = find_tables([grid], mapped, file.name, None)[0]
    intake.decoding.append(decoding_entry(file.name, grid))
    at = [table.columns[c] for c in source.channels] or _numeric_channels(table)
    channels = source.channels or [table.header[i] for i in at]
    zone = ZoneInfo(source.time_zone or rules.time_zone)
    readings: list[Reading] = []
    for number, row in enumerate(table.rows, start=1):
        unit = Unit(file.name, f"row#{number}", "\t".join(row))
        time_s = parse_time(table.value(row, source.timestamp), zone)
        if not any(cell.strip() for cell in row):
            intake.drop(unit, "out_of_scope", "empty_row")
        elif [normal(c) for c in row] == [normal(h) for h in table.header]:
            intake.drop(unit, "out_of_scope", "repeated_header")
        elif time_s is None:
            intake.drop(unit, "quarantined", "no_readable_time")
        elif readings and time_s == readings[-1].time_s:
            intake.drop(unit, "quarantined", "time_stands_twice")
        else:
            event = table.value(row, source.event) if source.event else ""
            values = tuple(_number(row[i]) if i < len(row) else math.nan for i in at)
            readings.append(Reading(time_s, values, event, unit.original))
    if not readings:
        raise SourceError(
            f"{file.name}: no value of {source.timestamp!r} is a time", "use ISO times, or epochs in s, ms, us or ns"
        )
    backwards = sum(b.time_s < a.time_s for a, b in itertools.pairwise(readings))
    intake.counts["clock_backwards"] += backwards
    events = [(r.time_s, r.event) for r in readings if r.event]
    step = median_step(readings)
    windows = windows_of(readings, rules.window_s)
    intake.counts["gaps"] += windows[-1].segment - 1
    for window in windows:
        _take_window(file, source, window, channels, events, codes, rules, step, intake)


def _take_window(
    file: SourceFile,
    source: SensorLogs,
    window: Window,
    channels: Sequence[str],
    events: Sequence[tuple[float, str]],
    codes: CodeTable,
    rules: SensorRules,
    step: float,
    intake: Intake,
) -> None:
    unit = Unit(file.name, f"window#{window.number}", "\n".join(r.text for r in window.readings))
    following = [(t, code) for t, code in events if window.start_s <= t <= window.end_s + rules.horizon_s]
    time_s, label = following[0] if following else (0.0, "")
    times = [r.time_s for r in window.readings]
    figures = {c: describe(times, [r.values[i] for r in window.readings]) for i, c in enumerate(channels)}
    base = {
        "source": file.name,
        "location": unit.location,
        "segment": window.segment,
        "start": dt.datetime.fromtimestamp(window.start_s, dt.UTC),
        "end": dt.datetime.fromtimestamp(window.end_s, dt.UTC),
        "rows": len(window.readings),
        "fault_type": label,
    }
    intake.windows.extend({**base, "channel": c, **(f or {})} for c, f in figures.items())
    if window.end_s - window.start_s + step < FULL_SHARE * rules.window_s:
        intake.drop(unit, "out_of_scope", "window_too_short")
        return
    entry = codes.find(label, source.device_model or "")
    if not label or entry is None or not entry.remedy:
        intake.drop(unit, "out_of_scope", "no_known_remedy" if label else "no_fault_in_horizon")
        return
    intake.drafts.append(
        Draft(
            unit,
            "sensor",
            source.device_model or entry.device_model,
            _in_words(figures, rules),
            (entry.cause,) if entry.cause else (),
            entry.remedy,
            entry.code,
            entry.meaning,
            group=f"{file.name} event {time_s:.3f}",
        )
    )


def _in_words(figures: dict[str, dict[str, float] | None], rules: SensorRules) -> str:
    w = words(rules.language)
    said = [
        w["channel"].format(
            name=name,
            mean=f"{f['mean']:.4g}",
            minimum=f"{f['minimum']:.4g}",
            maximum=f"{f['maximum']:.4g}",
            slope=f"{f['slope_per_s'] * 60:.3g}",
        )
        for name, f in figures.items()
        if f
    ]
    return w["window"].format(seconds=f"{rules.window_s:g}") + "\n" + w["joint"].join(said)


def _numeric_channels(table: Table) -> list[int]:
    """Columns, besides time and event, in which most values that are not empty are numbers."""
    skip = set(table.columns.values())
    chosen = []
    for index, name in enumerate(table.header):
        if not name or index in skip:
            continue
        values = [row[index] for row in table.rows if index < len(row) and row[index].strip()]
        numbers = sum(math.isfinite(_number(value)) for value in values)
        if values and numbers > 0.5 * len(values):
            chosen.append(index)
    return chosen


def _number(text: Any) -> float:
    try:
        value = float(str(text).strip())
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan
