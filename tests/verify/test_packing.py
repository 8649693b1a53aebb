"""The verifier sees rows that overlap, are too long or are shared unasked, and samples that see each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from specs.parameters import TrainingConfiguration
from tasks.data.batch_plan import plan_batches
from tasks.verify import packing

TRAINING = TrainingConfiguration(micro_batch=2, gradient_accumulation=4, max_length=128, packing=True)
ASKED = TRAINING.model_dump(mode="json")


def planned(training: TrainingConfiguration = TRAINING) -> list[dict[str, Any]]:
    return [asdict(row) for row in plan_batches([(f"s{n:02d}", n) for n in range(10, 60)], training)]


def seen(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What a worker writes of the first micro batch."""
    first = [r for r in rows if (r["step"], r["micro_batch"]) == (1, 0)]
    samples = [
        {
            "sample_id": r["sample_id"],
            "row": r["row"],
            "start": r["start"],
            "logit_difference": 0.0 if r["start"] else None,
            "loss": 2.5,
            "loss_alone": 2.5 + 1e-6,
        }
        for r in first
    ]
    return {"attention": "sdpa", "samples": samples}


def test_a_plan_as_made_is_right_and_so_is_one_of_an_earlier_version():
    assert packing.rows_wrong(planned(), ASKED) == 0
    apart = TRAINING.model_copy(update={"packing": False})
    rows = planned(apart)
    assert packing.rows_wrong(rows, apart.model_dump()) == 0
    earlier = [{k: v for k, v in row.items() if k not in ("row", "start")} for row in rows]
    assert packing.rows_wrong(earlier, {k: v for k, v in apart.model_dump().items() if k != "packing"}) == 0


CHANGES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "overlap": lambda r: {**r, "start": r["start"] - 1} if r["start"] else r,
    "gap": lambda r: {**r, "start": r["start"] + 1} if r["start"] else r,
    "width": lambda r: {**r, "padded_tokens": r["padded_tokens"] + (r["row"] == 1 and r["start"] == 0)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_rows_that_do_not_add_up_are_counted(change):
    assert packing.rows_wrong([CHANGES[change](row) for row in planned()], ASKED) > 0


@pytest.mark.parametrize("asked", [{"packing": False}, {"max_length": 100}, {"micro_batch": 1}])
def test_rows_against_another_configuration_are_counted(asked):
    assert packing.rows_wrong(planned(), {**ASKED, **asked}) > 0


def test_padding_and_passes_are_those_of_the_tensors():
    rows = planned()
    apart = planned(TRAINING.model_copy(update={"packing": False}))
    assert packing.forward_passes(rows).value < packing.forward_passes(apart).value
    tokens: dict[tuple[int, int], dict[int, int]] = {}
    for row in rows:
        widths = tokens.setdefault((row["step"], row["micro_batch"]), {})
        widths[row["row"]] = max(widths.get(row["row"], 0), row["start"] + row["padded_tokens"])
    total = sum(max(widths.values()) * len(widths) for widths in tokens.values())
    assert packing.padding_share(rows).value == pytest.approx(1 - sum(r["n_tokens"] for r in rows) / total)


def test_samples_kept_apart_pass_and_a_plan_that_shares_no_row_has_nothing_to_show():
    rows = planned()
    assert packing.samples_touched(rows, seen(rows), ASKED).value == 0
    assert packing.loss_difference(rows, seen(rows), ASKED).value == pytest.approx(1e-6)
    apart = planned(TRAINING.model_copy(update={"packing": False}))
    assert packing.samples_touched(apart, {}, ASKED).value == packing.loss_difference(apart, {}, ASKED).value == 0
    assert not packing.loss_difference(apart, {}, ASKED).applies


@pytest.mark.parametrize("value", [1e-9, None])
def test_a_sample_that_another_one_touched_is_counted(value):
    rows, found = planned(), seen(planned())
    found["samples"][-1]["logit_difference"] = value
    assert packing.samples_touched(rows, found, ASKED).value == 1


def test_without_a_plan_nothing_is_shown():
    for metric in (packing.padding_share([]), packing.forward_passes([]), packing.samples_touched([], {}, ASKED)):
        assert metric.value is None


def test_what_was_not_seen_of_this_plan_never_passes():
    rows, found = planned(), seen(planned())
    others = {**found, "samples": found["samples"][:-1]}
    for document in ({}, {**found, "attention": "eager"}, others):
        for metric in (packing.samples_touched, packing.loss_difference):
            assert metric(rows, document, ASKED).value is None
            assert metric(rows, document, ASKED).reason
    found["samples"][0]["loss"] = None
    assert packing.loss_difference(rows, found, ASKED).value is None
