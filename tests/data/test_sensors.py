"""Sensor logs: windows never span a gap, times are UTC, every row has one fate, labels come from what follows."""

from __future__ import annotations

import datetime as dt
import gzip
import itertools
import math
import random
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.errors import SourceError
from specs.sources import SensorLogs
from tasks.data.clock import Clock
from tasks.data.records import Intake, SourceFile
from tasks.data.sensors import SensorRules, read_sensor_log
from tasks.data.tabular import CodeEntry, CodeTable
from tasks.data.windows import GAP_FACTOR, Events, Reading, Window, describe, median_step, windows_of
from tasks.verify.data_sensors import seconds_of
from tests.support.raw_project import make_project, run_stage, stage_context

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
steps = st.lists(st.sampled_from([1.0, 1.0, 1.0, 1.0, 1.5, 30.0, 4000.0, -50.0]), min_size=0, max_size=120)


def readings_of(gaps: list[float]) -> list[Reading]:
    times = [1_700_000_000.0]
    for gap in gaps:
        times.append(times[-1] + gap)
    return [Reading(t, (float(i),)) for i, t in enumerate(times)]


@settings(max_examples=150, deadline=None)
@given(steps, st.sampled_from([5.0, 60.0, 1000.0]))
def test_every_reading_is_in_one_window_and_no_window_spans_a_gap_or_a_clock_that_runs_back(gaps, window_s):
    readings = readings_of(gaps)
    windows = windows_of(readings, window_s)
    assert [r for w in windows for r in w.readings] == readings
    assert [w.number for w in windows] == list(range(1, len(windows) + 1))
    usual = median_step(readings)
    for window in windows:
        inside = [b.time_s - a.time_s for a, b in itertools.pairwise(window.readings)]
        assert all(0 < step <= GAP_FACTOR * usual for step in inside)
        assert window.end_s - window.start_s < window_s or len(window.readings) == 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60), st.floats(0.01, 100))
def test_the_figures_of_a_channel_are_those_of_numpy(values, step):
    times = [1_700_000_000.0 + i * step for i in range(len(values))]
    found = describe([*times, times[-1] + step], [*values, math.nan])
    scale = max(1.0, max(abs(v) for v in values))
    assert found is not None
    assert found["mean"] == pytest.approx(np.mean(values), abs=1e-9 * scale)
    assert found["std"] == pytest.approx(np.std(values), abs=1e-9 * scale)
    assert (found["minimum"], found["maximum"]) == (min(values), max(values))
    assert found["rms"] == pytest.approx(np.sqrt(np.mean(np.square(values))), abs=1e-9 * scale)
    slope = np.polyfit(np.arange(len(values)) * step, values, 1)[0]
    assert found["slope_per_s"] == pytest.approx(slope, abs=1e-5 * scale / step)


def test_a_channel_of_huge_values_has_finite_figures_and_one_without_values_has_none():
    found = describe([0.0, 1.0], [1e300, -1e300])
    assert found is not None
    assert all(map(math.isfinite, found.values()))
    assert describe([0.0], [math.nan]) is None


@settings(max_examples=80, deadline=None)
@given(
    st.datetimes(dt.datetime(2023, 1, 1), dt.datetime(2026, 1, 1)),
    st.integers(1, 900),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Shanghai", "Australia/Lord_Howe", "UTC"]),
)
def test_local_times_of_a_running_clock_come_back_as_the_utc_they_were_written_at(start, step, name):
    """Also through the hour that happens twice, which the order of the rows resolves; verifier and stage agree."""
    zone = ZoneInfo(name)
    utc = [start.replace(microsecond=0, tzinfo=dt.UTC) + dt.timedelta(seconds=step * i) for i in range(40)]
    if utc[0].astimezone(zone).fold:
        return  # a log that begins in the second of the two hours cannot say so
    written = [moment.astimezone(zone).replace(tzinfo=None).isoformat(" ") for moment in utc]
    clock = Clock(zone)
    assert [clock.read(text)[0] for text in written] == [moment.timestamp() for moment in utc]


def test_the_hour_that_never_happens_is_no_time_and_the_hour_that_happens_twice_is_counted():
    clock = Clock(NEW_YORK)
    assert clock.read("2026-03-08 02:30:00") == (None, "time_does_not_exist")
    assert seconds_of("2026-03-08 02:30:00", NEW_YORK) is None
    rows = ["2026-11-01 01:59:59", "2026-11-01 01:00:00", "2026-11-01 01:00:01", "2026-11-01 02:00:00"]
    times = [clock.read(text)[0] for text in rows]
    assert [b - a for a, b in itertools.pairwise(times)] == [1, 1, 3599]
    assert clock.ambiguous == 3


@pytest.mark.parametrize(
    "text", ["2026年3月1日 8:05", "2026/3/1 08:05:00", "2026.03.01 08:05", "2026-03-01T08:05:00.000", "202603010805"]
)
def test_dates_as_people_write_them_are_read_alike_by_stage_and_verifier(text: str):
    expected = dt.datetime(2026, 3, 1, 8, 5, tzinfo=BERLIN).timestamp()
    assert Clock(BERLIN).read(text)[0] == expected
    assert seconds_of(text, BERLIN) == expected


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1000), st.sampled_from("AB")), max_size=8),
    st.integers(0, 900),
    st.integers(0, 300),
)
def test_a_window_is_labelled_by_the_events_from_its_start_to_the_end_of_its_horizon(events, start, horizon):
    readings = [Reading(float(t), (0.0,), code) for t, code in sorted(events)]
    window = Window(1, 1, (Reading(float(start), (0.0,)), Reading(start + 59.0, (0.0,))))
    expected = sorted((float(t), c) for t, c in events if start <= t <= start + 59 + horizon)
    assert Events.of(readings).within(window, horizon) == expected


def intake_of(path: Path, codes: CodeTable | None = None, zone: str = "UTC", **source: object) -> Intake:
    intake = Intake()
    log = SensorLogs.model_validate({"kind": "sensor_logs", "path": path.name, **source})
    read_sensor_log(SourceFile(path.name, path), log, intake, codes or CodeTable(), SensorRules(60, 300, "en", zone))
    return intake


def test_duplicate_times_bad_times_and_clock_jumps_are_counted_per_file(tmp_path: Path):
    start = dt.datetime(2026, 5, 6, 8)
    stamps = [start + dt.timedelta(seconds=s) for s in (*range(120), 119, *range(400, 520), *range(60, 120))]
    rows = [f"{t.isoformat(' ')},{i}" for i, t in enumerate(stamps)]
    rows.insert(10, "yesterday,1")
    (tmp_path / "a.csv").write_text("timestamp,load\n" + "\n".join(rows))
    intake = intake_of(tmp_path / "a.csv")
    (told,) = intake.sensor_logs
    assert (told["gaps"], told["clock_backwards"], told["longest_gap_s"]) == (1, 1, 281)
    assert (told["time_stands_twice"], told["no_readable_time"]) == (1, 1)
    assert told["readings"] == 300
    assert sum(w["rows"] for w in intake.windows) == 300


def test_local_times_are_stored_as_utc(tmp_path: Path):
    rows = [f"2026-07-01 08:00:{s:02d},{s}" for s in range(60)]
    (tmp_path / "a.csv").write_text("timestamp,load\n" + "\n".join(rows))
    (window,) = intake_of(tmp_path / "a.csv", zone="Asia/Shanghai").windows
    assert window["start"] == dt.datetime(2026, 7, 1, 0, 0, tzinfo=dt.UTC)
    (window,) = intake_of(tmp_path / "a.csv", zone="Asia/Shanghai", time_zone="UTC").windows
    assert window["start"] == dt.datetime(2026, 7, 1, 8, 0, tzinfo=dt.UTC)


def test_a_parquet_log_gives_the_same_windows_as_the_csv(tmp_path: Path):
    rng = random.Random(1)
    times = [dt.datetime(2026, 5, 6, 8, tzinfo=dt.UTC) + dt.timedelta(seconds=s) for s in range(200)]
    values = [round(rng.gauss(50, 3), 3) for _ in times]
    text = "\n".join(f"{t:%Y-%m-%d %H:%M:%S},{v}" for t, v in zip(times, values, strict=True))
    (tmp_path / "a.csv").write_text("timestamp,load\n" + text)
    stamps = pa.array(times, pa.timestamp("ms", tz="UTC"))
    pq.write_table(pa.table({"timestamp": stamps, "load": values}), tmp_path / "a.parquet")
    csv, parquet = (intake_of(tmp_path / name).windows for name in ("a.csv", "a.parquet"))
    assert [{**w, "source": ""} for w in csv] == [{**w, "source": ""} for w in parquet]


def wide_text(rows: int, width: int) -> str:
    return "\n".join("\t".join(f"{r + c / 100:.3f}" for c in range(width)) for r in range(rows)) + "\n"


def test_a_wide_log_gives_one_window_per_row_at_the_rate_of_its_file(tmp_path: Path):
    for name, width in (("TS1", 60), ("PS1", 600)):
        (tmp_path / f"{name}.txt.gz").write_bytes(gzip.compress(wide_text(5, width).encode()))
        intake = intake_of(tmp_path / f"{name}.txt.gz", wide={"seconds_per_row": 60, "start": "2026-01-01 00:00:00"})
        assert {w["channel"] for w in intake.windows} == {name}
        assert [w["start"].minute for w in intake.windows] == [0, 1, 2, 3, 4]
        assert intake.sensor_logs[0]["step_s"] == 60 / width
        assert intake.windows[0]["slope_per_s"] == pytest.approx(0.01 * width / 60)
        assert {f.reason for f in intake.fates} == {"no_fault_in_horizon"}


def test_rows_of_a_wide_log_that_are_no_cycle_are_quarantined_with_their_reason(tmp_path: Path):
    text = wide_text(3, 4) + "1\t2\n1\tx\t3\t4\n" + wide_text(1, 4)
    (tmp_path / "TS1.txt").write_text(text)
    intake = intake_of(tmp_path / "TS1.txt", wide={"seconds_per_row": 60})
    reasons = {f.unit.location: f.reason for f in intake.fates if f.fate == "quarantined"}
    assert reasons == {"row#4": "other_number_of_samples", "row#5": "not_all_numbers"}
    assert [w["start"].minute for w in intake.windows] == [0, 1, 2, 5]


def test_a_wide_log_has_no_columns_to_name_and_a_log_without_times_says_what_to_write(tmp_path: Path):
    with pytest.raises(ValueError, match="leave out channels and event"):
        SensorLogs.model_validate({"kind": "sensor_logs", "path": "a", "wide": {"seconds_per_row": 60}, "event": "e"})
    (tmp_path / "a.csv").write_text("timestamp,load\nsoon,1\n")
    with pytest.raises(SourceError, match="no value of 'timestamp' is a time"):
        intake_of(tmp_path / "a.csv")


def test_a_window_becomes_a_sample_only_where_a_remedy_is_known(tmp_path: Path):
    codes = CodeTable()
    codes.put(("e1", ""), CodeEntry("E1", "", "overload", "dull tool", "change the tool"))
    start = dt.datetime(2026, 5, 6, 8)
    rows = []
    for s in range(1200):
        event = {500: "E1", 1100: "E2"}.get(s, "")
        rows.append(f"{(start + dt.timedelta(seconds=s)).isoformat(' ')},{s},{event}")
    (tmp_path / "a.csv").write_text("timestamp,load,event\n" + "\n".join(rows))
    intake = intake_of(tmp_path / "a.csv", codes, event="event")
    assert {d.repair for d in intake.drafts} == {"change the tool"}
    assert {f.reason for f in intake.fates} == {"no_known_remedy", "no_fault_in_horizon"}
    assert len(intake.drafts) + len(intake.fates) == 20


@pytest.mark.parametrize("language", ["en"])
def test_the_verifier_accepts_logs_over_a_change_of_clocks_and_wide_logs(
    tmp_path: Path, tiny_model: Path, language: str
):
    from specs.project import Project
    from tasks.verify.data import metrics

    spec = make_project(tmp_path, language)
    utc = [dt.datetime(2026, 10, 24, 23, 30, tzinfo=dt.UTC) + dt.timedelta(seconds=20 * i) for i in range(400)]
    local = [t.astimezone(BERLIN).replace(tzinfo=None).isoformat(" ") for t in utc]
    (tmp_path / "raw" / "clock.csv").write_text("timestamp,load\n" + "\n".join(f"{t},{i}" for i, t in enumerate(local)))
    (tmp_path / "raw" / "TS1.txt").write_text(wide_text(6, 5) + "1\t2\n")
    sources = [s.model_dump(mode="json") for s in spec.sources]
    sources += [
        {"kind": "sensor_logs", "path": "raw/clock.csv", "time_zone": "Europe/Berlin"},
        {"kind": "sensor_logs", "path": "raw/TS1.txt", "wide": {"seconds_per_row": 60}},
    ]
    spec = Project.model_validate({**spec.model_dump(mode="json", exclude={"stages"}), "sources": sources})
    out = tmp_path / "out"
    result = run_stage(tmp_path, spec, tiny_model, out)
    assert any("happen twice" in note for note in result.notes)
    context = stage_context(tmp_path, spec, tiny_model, out).model_dump(mode="json")
    assert metrics(out, {}, context)["rows_unaccounted"].value == 0
    windows = pq.read_table(out / "artifacts" / "windows.parquet").to_pylist()
    mine = [w for w in windows if w["source"] == "raw/clock.csv"]
    assert sum(w["rows"] for w in mine) == 400
    assert (mine[0]["start"], mine[-1]["end"]) == (utc[0], utc[-1])
    path = out / "artifacts" / "windows.parquet"
    table = pq.read_table(path)
    shifted = [w | {"start": w["start"] + dt.timedelta(hours=1)} if w in mine[5:6] else w for w in windows]
    pq.write_table(pa.Table.from_pylist(shifted, schema=table.schema), path)
    assert metrics(out, {}, context)["rows_unaccounted"].value == 1
