"""Sensor logs: every row into one window or quarantine, every window into numbers, and into a sample where a fault
with a known remedy follows."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from zoneinfo import ZoneInfo

from specs.base import Language
from specs.errors import SourceError
from specs.sources import SensorLogs
from tasks.data.clock import Clock, parse_time
from tasks.data.grid import FlawedRow
from tasks.data.grids import read_grid
from tasks.data.records import Draft, FateName, Intake, SourceFile, Unit
from tasks.data.tables import Table, find_tables, normal
from tasks.data.tabular import CodeTable, decoding_entry
from tasks.data.windows import Events, Reading, Window, describe, is_too_short, median_step, windows_of
from tasks.data.wording import words


@dataclass(frozen=True, slots=True)
class SensorRules:
    """What the approved parameters and the spec say about windows."""

    window_s: float
    horizon_s: float
    language: Language
    time_zone: str


def read_sensor_log(file: SourceFile, source: SensorLogs, intake: Intake, codes: CodeTable, rules: SensorRules) -> None:
    """Windows of a log: numbers for all, a text sample only where a fault with a known remedy follows.

    Raises `SourceError` for a log without a readable time or, where it is wide, without a row of numbers.
    """
    if source.wide:
        _read_wide(file, source, intake, rules)
        return
    grid = read_grid(file, source.encoding)
    mapped = {name: name for name in (source.timestamp, *source.channels, *filter(None, [source.event]))}
    table, _ = find_tables([grid], mapped, file.name, None)[0]
    intake.decoding.append(decoding_entry(file.name, grid))
    intake.counts.update(grid.noticed)
    at = [table.columns[c] for c in source.channels] or _numeric_channels(table)
    channels = source.channels or [table.header[i] for i in at]
    clock = Clock(ZoneInfo(source.time_zone or rules.time_zone))
    readings, dropped = _readings(file, source, table, at, clock, intake)
    if not readings:
        raise SourceError(
            f"{file.name}: no value of {source.timestamp!r} is a time", "use ISO times, or epochs in s, ms, us or ns"
        )
    step, windows = median_step(readings), windows_of(readings, rules.window_s)
    log = _Log(file, source, channels, Events.of(readings), step, codes, rules, intake)
    for window in windows:
        log.take(window)
    steps = [b.time_s - a.time_s for a, b in itertools.pairwise(readings)]
    backwards = sum(s < 0 for s in steps)
    intake.counts.update(
        {"clock_backwards": backwards, "gaps": windows[-1].segment - 1 - backwards, "ambiguous_times": clock.ambiguous}
    )
    intake.sensor_logs.append(
        {
            "source": file.name,
            "readings": len(readings),
            "channels": len(channels),
            "step_s": step,
            "windows": len(windows),
            "gaps": windows[-1].segment - 1 - backwards,
            "longest_gap_s": max((s for s in steps if s > 0), default=0.0) if windows[-1].segment > 1 else 0.0,
            "clock_backwards": backwards,
            "ambiguous_times": clock.ambiguous,
            **{reason: dropped[reason] for reason in ("no_readable_time", "time_does_not_exist", "time_stands_twice")},
        }
    )


def _readings(
    file: SourceFile, source: SensorLogs, table: Table, at: Sequence[int], clock: Clock, intake: Intake
) -> tuple[list[Reading], Counter[str]]:
    """The usable rows; every other row gets its fate."""
    readings: list[Reading] = []
    dropped: Counter[str] = Counter()
    header = [normal(h) for h in table.header]
    for number, row in enumerate(table.rows, start=1):
        unit = Unit(file.name, f"row#{number}", row.original if isinstance(row, FlawedRow) else "\t".join(row))
        if isinstance(row, FlawedRow):
            intake.drop(unit, "quarantined", row.reason)
            continue
        if not any(cell.strip() for cell in row):
            intake.drop(unit, "out_of_scope", "empty_row")
            continue
        if [normal(c) for c in row] == header:
            intake.drop(unit, "out_of_scope", "repeated_header")
            continue
        before_s = clock.last_s
        time_s, reason = clock.read(table.value(row, source.timestamp))
        if time_s is None or (readings and time_s == readings[-1].time_s):
            clock.last_s = before_s
            reason = reason or "time_stands_twice"
            dropped[reason] += 1
            intake.drop(unit, "quarantined", reason)
            continue
        event = table.value(row, source.event) if source.event else ""
        values = tuple(_number(row[i]) if i < len(row) else math.nan for i in at)
        readings.append(Reading(time_s, values, event, unit.original))
    return readings, dropped


@dataclass(frozen=True, slots=True)
class _Log:
    """Turns the windows of one log into rows of `windows.parquet` and drafts."""

    file: SourceFile
    source: SensorLogs
    channels: Sequence[str]
    events: Events
    step_s: float
    codes: CodeTable
    rules: SensorRules
    intake: Intake

    def take(self, window: Window) -> None:
        unit = Unit(self.file.name, f"window#{window.number}", "\n".join(r.text for r in window.readings))
        following = self.events.within(window, self.rules.horizon_s)
        time_s, label = following[0] if following else (0.0, "")
        self.intake.counts["windows_before_several_faults"] += len({code for _, code in following}) > 1
        times = [r.time_s for r in window.readings]
        figures = {c: describe(times, [r.values[i] for r in window.readings]) for i, c in enumerate(self.channels)}
        _store(self.intake, unit, window.segment, (window.start_s, window.end_s), len(times), label, figures)
        if is_too_short(window, self.step_s, self.rules.window_s):
            self.intake.drop(unit, "out_of_scope", "window_too_short")
            return
        entry = self.codes.find(label, self.source.device_model or "")
        if not label or entry is None or not entry.remedy:
            self.intake.drop(unit, "out_of_scope", "no_known_remedy" if label else "no_fault_in_horizon")
            return
        self.intake.drafts.append(
            Draft(
                unit,
                "sensor",
                self.source.device_model or entry.device_model,
                _in_words(figures, self.rules),
                (entry.cause,) if entry.cause else (),
                entry.remedy,
                entry.code,
                entry.meaning,
                group=f"{self.file.name} event {time_s:.3f}",
            )
        )


Figures = dict[str, dict[str, float] | None]


def _store(
    intake: Intake, unit: Unit, segment: int, span_s: tuple[float, float], rows: int, label: str, figures: Figures
) -> None:
    """One row of `windows.parquet` per channel; times in UTC."""
    start, end = (dt.datetime.fromtimestamp(time_s, dt.UTC) for time_s in span_s)
    base = {"source": unit.source, "location": unit.location, "segment": segment, "start": start, "end": end}
    base |= {"rows": rows, "fault_type": label}
    intake.windows.extend({**base, "channel": c, **(f or {})} for c, f in figures.items())


def _read_wide(file: SourceFile, source: SensorLogs, intake: Intake, rules: SensorRules) -> None:
    """A log without header and times: each row is a cycle and a window, each column a sample of the only channel.

    The channel has the name of the file, and its rate is the number of columns over the length of the row.
    """
    wide = source.wide
    assert wide is not None
    grid = read_grid(file, source.encoding)
    intake.decoding.append(decoding_entry(file.name, grid))
    zone = ZoneInfo(source.time_zone or rules.time_zone)
    start_s = parse_time(wide.start, zone)
    if start_s is None:
        raise SourceError(f"{wide.start!r} is no time in {zone}", "write start as 2026-01-31 12:00:00")
    width = Counter(len(row) for row in grid.cells.head()).most_common(1)
    usual = width[0][0] if width else 0
    channel = PurePosixPath(file.name).name.split(".")[0]
    taken = 0
    for number, row in enumerate(grid.cells, start=1):
        values = [] if isinstance(row, FlawedRow) else [_number(cell) for cell in row]
        reason = _wide_problem(row, values, usual)
        if reason:
            original = row.original if isinstance(row, FlawedRow) else "\t".join(row)
            fate: FateName = "out_of_scope" if reason == "empty_row" else "quarantined"
            intake.drop(Unit(file.name, f"row#{number}", original), fate, reason)
            continue
        taken += 1
        step_s = wide.seconds_per_row / usual
        first_s = start_s + (number - 1) * wide.seconds_per_row
        times = [first_s + i * step_s for i in range(usual)]
        unit = Unit(file.name, f"window#{taken}")
        _store(intake, unit, 1, (times[0], times[-1]), 1, "", {channel: describe(times, values)})
        intake.drop(unit, "out_of_scope", "no_fault_in_horizon")
    if not taken:
        raise SourceError(f"{file.name} has no row of numbers", "leave out `wide:` if the log has a header and times")
    intake.sensor_logs.append(
        {"source": file.name, "readings": taken * usual, "channels": 1, "step_s": wide.seconds_per_row / usual}
        | {"windows": taken, "gaps": 0, "longest_gap_s": 0.0, "clock_backwards": 0, "ambiguous_times": 0}
        | {"no_readable_time": 0, "time_does_not_exist": 0, "time_stands_twice": 0}
    )


def _wide_problem(row: Sequence[str], values: Sequence[float], width: int) -> str:
    """Why a row of a wide log cannot be a window, or an empty string."""
    if isinstance(row, FlawedRow):
        return row.reason
    if not any(cell.strip() for cell in row):
        return "empty_row"
    if len(row) != width:
        return "other_number_of_samples"
    return "" if all(map(math.isfinite, values)) else "not_all_numbers"


def _in_words(figures: Figures, rules: SensorRules) -> str:
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
    filled, numbers = Counter[int](), Counter[int]()
    for row in table.rows:
        for index, cell in enumerate(row):
            if cell.strip():
                filled[index] += 1
                numbers[index] += math.isfinite(_number(cell))
    candidates = [i for i, name in enumerate(table.header) if name and i not in skip and filled[i]]
    return [i for i in candidates if numbers[i] > 0.5 * filled[i]]


def _number(text: Any) -> float:
    try:
        value = float(str(text).strip())
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan
