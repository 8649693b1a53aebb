"""The curve of a project's runs says how far each signed sheet was from what came."""

from __future__ import annotations

import pytest

from flows.curve import curve, lines


def entry(run: str, stage: str, metric: str, expected: float, actual: float, known: list[str] | None = None) -> dict:
    return {"run": run, "stage": stage, "metric": metric, "expected": expected, "actual": actual, "known": known or []}


def test_each_quantity_has_its_mean_error_per_run():
    found = curve(
        [
            entry("a", "data", "rows_total", 90, 100),
            entry("a", "data", "samples_train", 150, 100),
            entry("a", "train", "training_hours", 3, 2),
            entry("a", "train", "peak_bytes", 100, 100),
            entry("b", "data", "rows_total", 100, 100),
            entry("b", "train", "steps_taken", 44, 40),
        ]
    )
    assert [run for run, _ in found] == ["a", "b"]
    assert found[0][1] == pytest.approx({"rows": 0.3, "time": 0.5, "memory": 0})
    assert found[1][1] == pytest.approx({"rows": 0, "steps": 0.1})


def test_a_time_counts_twice_where_other_programs_added_to_it():
    busy = {**entry("a", "train", "training_hours", 2, 8), "idle": 2.5}
    whole = {**entry("a", "data", "stage_seconds", 10, 20), "idle": None}
    ((_, errors),) = curve([busy, whole])
    assert errors == pytest.approx({"time": (0.75 + 0.5) / 2, "idle_time": 0.2})
    both = [("a", errors), ("b", errors)]
    assert "time without other programs 20.0%" in lines(both, "en")[1]
    assert "扣除其他程序后的时间 20.0%" in lines(both, "zh")[1]


def test_only_what_the_sheet_said_counts():
    later = entry("a", "train", "training_hours", 2, 2, known=["data"])
    unmeasured = entry("a", "train", "steps_taken", 2, 0)
    other = entry("a", "evaluate", "fault_type_coverage", 0.5, 0.1)
    assert curve([later, unmeasured, other]) == []


@pytest.mark.parametrize(("language", "word"), [("en", "rows 10.0%"), ("zh", "行数 10.0%")])
def test_two_runs_make_a_curve_and_one_does_not(language, word):
    found = curve([entry(run, "data", "rows_total", 90, 100) for run in ("a", "b")])
    assert sum(word in line for line in lines(found, language)) == 2
    assert lines(found[:1], language) == []
