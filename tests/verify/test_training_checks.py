"""Trends, throughput by length, checks of batches and masks, and proofs of resumes: the parts of the verifier."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.tolerances import TOLERANCES, tolerance
from tasks.verify.interruptions import beyond, interruptions
from tasks.verify.training_checks import masked_token_effect, regrouping_difference
from tasks.verify.trends import loss_noise, throughput_by_length, trend_certainty


def curve(losses: list[float]) -> list[dict[str, Any]]:
    return [{"step": n, "loss": loss} for n, loss in enumerate(losses, start=1)]


def test_a_fall_within_the_noise_of_batches_is_not_certain_and_a_fall_above_it_is():
    rng = random.Random(1)
    noise = [rng.gauss(0, 0.5) for _ in range(30)]
    flat = curve([2 + e for e in noise])
    falling = curve([2 - 0.1 * n + e for n, e in enumerate(noise)])
    assert abs(trend_certainty(flat).value or 9) < 2 < (trend_certainty(falling).value or 0)
    assert loss_noise(falling).value == pytest.approx(0.5, rel=0.4)


@given(st.lists(st.floats(-10, 10), min_size=4, max_size=40))
def test_a_curve_read_backwards_is_as_certain_the_other_way(losses):
    ahead, back = trend_certainty(curve(losses)).value, trend_certainty(curve(losses[::-1])).value
    assert ahead == pytest.approx(-(back or 0.0))


def test_one_wild_batch_moves_neither_noise_nor_certainty_by_much():
    losses = [3 - 0.05 * n + 0.1 * (n % 3) for n in range(30)]
    wild = [*losses[:12], 50.0, *losses[13:]]
    assert (trend_certainty(curve(wild)).value or 0) > 2
    assert (loss_noise(curve(wild)).value or 9) < 0.2
    assert trend_certainty(curve([1.0, 0.5, 0.2])).value is None


def test_throughput_is_by_length_and_leaves_the_first_step_out():
    planned = [{"step": s, "n_tokens": 10 * s} for s in range(1, 10)]
    lines = [{"step": s, "tokens": 10 * s, "seconds": 100.0 if s == 1 else float(s)} for s in range(1, 10)]
    found = throughput_by_length(planned, lines)
    assert [(c.shortest, c.longest, c.steps) for c in found] == [(20, 30, 2), (40, 50, 2), (60, 70, 2), (80, 90, 2)]
    assert all(c.tokens_per_second == pytest.approx(10) for c in found)
    assert throughput_by_length(planned, lines[:1]) == []


SETTINGS = {"device": {"kind": "cpu"}, "requested": {"compute": "fp32"}}
CHECKS = {
    "samples": ["a", "b"],
    "padding_tokens": 4,
    "loss_whole": 2.0,
    "loss_split": 2.0,
    "loss_padding_changed": 2.0,
    "loss_of_learnt_tokens": 2.0,
    "gradient_norm": 1.0,
    "gradient_distance": 0.0,
}
PLANNED = [{"step": 1, "n_tokens": n, "padded_tokens": 9} for n in (5, 9)]


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        ({}, True),
        ({"loss_split": 2 + 1e-6}, True),
        ({"loss_split": 2 + 1e-5}, False),
        ({"gradient_distance": 1e-4}, False),
        ({"samples": ["a"]}, None),
        ({"gradient_distance": None}, None),
    ],
)
def test_a_step_cut_otherwise_may_differ_by_rounding_alone(change, passes):
    value = regrouping_difference(CHECKS | change, SETTINGS, PLANNED).value
    assert (None if value is None else value <= 1) == passes


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        ({}, True),
        ({"loss_padding_changed": 2 + 1e-9}, False),
        ({"loss_of_learnt_tokens": 2 + 1e-6}, True),
        ({"loss_of_learnt_tokens": 2.5}, False),
        ({"padding_tokens": 0}, None),
    ],
)
def test_nothing_masked_may_move_the_loss(change, passes):
    value = masked_token_effect(CHECKS | change, SETTINGS, PLANNED).value
    assert (None if value is None else value == 0) == passes


def test_a_plan_of_single_samples_has_nothing_to_regroup_and_one_without_padding_nothing_to_hide():
    alone = [{**line, "step": n, "padded_tokens": 5} for n, line in enumerate(PLANNED)]
    one = CHECKS | {"samples": ["a"], "padding_tokens": 0}
    assert regrouping_difference(one, SETTINGS, PLANNED).applies
    assert not regrouping_difference(one, SETTINGS, alone).applies
    assert masked_token_effect(one, SETTINGS, alone).value == 0
    for metric in (regrouping_difference, masked_token_effect):
        assert (metric(one, SETTINGS, []).value, metric(one, SETTINGS, []).applies) == (None, True)


def test_the_tolerances_of_a_gpu_are_said_to_be_unmeasured_and_a_cpu_repeats_bit_for_bit():
    assert all(row.repeated == 0 for row in TOLERANCES if row.device == "cpu")
    assert not any(row.measured for row in TOLERANCES if row.device == "cuda")
    assert beyond(2.0, 2.1, tolerance("cuda", "bf16").repeated) == pytest.approx(0.04)
    with pytest.raises(KeyError):
        tolerance("tpu", "fp32")


def write_logs(folder: Path, **files: list[dict[str, Any]]) -> Path:
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "settings.json").write_text(json.dumps(SETTINGS))
    return folder


PINNED = {"proof": "pinned batch", "steps": 0, "loss": 2.0}


@pytest.mark.parametrize(
    ("proofs", "unproven"),
    [
        ([{**PINNED, "session": 2, "largest_difference": 0.0}, {**PINNED, "session": 3, "largest_difference": 0.0}], 0),
        ([{**PINNED, "session": 3, "largest_difference": 0.0}], 1),
        (
            [{**PINNED, "session": 2, "largest_difference": 1e-9}, {**PINNED, "session": 3, "largest_difference": 0.0}],
            1,
        ),
        ([{"proof": "steps trained again", "session": 3, "steps": 2, "largest_difference": 0.0}], 2),
    ],
)
def test_every_resume_that_is_part_of_the_result_needs_its_proof(proofs, unproven, tmp_path):
    """The first session begins from nothing; the fourth was cut off while it loaded, and left nothing."""
    sessions = [{"session": n, "from_step": s} for n, s in ((1, 0), (2, 4), (3, 8), (4, 10), (5, 10))]
    proofs = [*proofs, {**PINNED, "session": 5, "largest_difference": 0.0}]
    found = interruptions(write_logs(tmp_path, sessions=sessions, continuity=proofs))
    assert found["resumes_unproven"].value == unproven


@pytest.mark.parametrize(("difference", "confirmed", "unproven"), [(1e-6, True, 0), (1e-6, False, 1), (1e-4, True, 1)])
def test_a_resume_elsewhere_may_add_in_another_order_where_a_person_confirmed_it(
    difference, confirmed, unproven, tmp_path
):
    row = {"what": "device", "was": "AVX512", "now": "AVX2"}
    sessions = [{"session": 1, "from_step": 0}, {"session": 2, "from_step": 4, "confirmed": [row]}]
    logs = write_logs(
        tmp_path, sessions=sessions, continuity=[{**PINNED, "session": 2, "largest_difference": difference}]
    )
    assert interruptions(logs, [row] if confirmed else [])["resumes_unproven"].value == unproven


def test_spikes_are_counted_by_what_followed(tmp_path):
    metrics = [{"step": n, "spike": s} for n, s in enumerate(["noted", "skipped", "skipped", "passed over"])]
    folder = write_logs(tmp_path, metrics=[*metrics, {"step": 9}], spikes=[{"step": 3}], sessions=[])
    found = interruptions(folder)
    counts = {n: found[n].value for n in ("spikes_noted", "spikes_skipped", "spikes_passed_over", "roll_backs")}
    assert counts == {"spikes_noted": 1, "spikes_skipped": 2, "spikes_passed_over": 1, "roll_backs": 1}
