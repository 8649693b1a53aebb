"""Census, continuity and the clock of saves: the pure parts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from specs.errors import ResumeRefused
from specs.files import write_lines
from tasks.data.batch_plan import plan_batches
from tasks.training.census import ends_epoch, take_census
from tasks.training.continuity import Retrace, prove_loss, tolerance
from tasks.training.feed import group_steps
from tasks.training.launch import training_notes
from tasks.training.recorder import Recorder
from tests.support.samples import small_training

STEPS = group_steps(plan_batches([(f"s{n:02d}", 5 + n % 7) for n in range(23)], small_training(max_steps=None)))


def fed_lines() -> list[dict[str, Any]]:
    return [
        {"step": s.step, "micro_batch": b.number, "sample_ids": list(b.sample_ids)}
        for s in STEPS
        for b in s.micro_batches
    ]


def test_every_epoch_fed_as_planned_has_a_census_without_a_fault():
    for epoch in (1, 2):
        census = take_census(epoch, STEPS, fed_lines())
        assert (census.fault, census.planned, census.fed) == ("", 23, 23)
    assert [s.step for s in STEPS if ends_epoch(STEPS, s.step)] == [4, 8]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines[:3] + lines[4:], "2 too rarely"),
        (lambda lines: [*lines[:4], lines[3], *lines[4:]], "2 samples too often"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "2 micro batches out of order"),
        (lambda lines: [{**lines[0], "sample_ids": ["zz", *lines[0]["sample_ids"][1:]]}, *lines[1:]], "1 too rarely"),
    ],
)
def test_a_sample_fed_too_often_too_rarely_or_out_of_order_is_a_fault(change, words):
    assert words in take_census(1, STEPS, change(fed_lines())).fault


def test_a_plan_that_names_a_sample_twice_is_a_fault_unless_it_only_measures():
    rows = plan_batches([(f"s{n:02d}", 5) for n in range(6)], small_training(max_steps=None, epochs=1))
    again = group_steps([*rows, *(replace(row, step=2) for row in rows)])
    fed = [
        {"step": s.step, "micro_batch": b.number, "sample_ids": list(b.sample_ids)}
        for s in again
        for b in s.micro_batches
    ]
    assert "6 samples too often" in take_census(1, again, fed).fault
    assert take_census(1, again, fed, whole_plan=False).fault == ""
    assert "2 too rarely" in take_census(1, again, fed[:-1], whole_plan=False).fault


def test_steps_trained_again_must_bring_the_losses_they_had_bit_for_bit_on_a_cpu():
    lines = [{"step": n, "loss": 1.0 / n} for n in range(5, 10)]
    retrace = Retrace(lines, "cpu", "fp32")
    assert [retrace.compare(n, 1.0 / n) for n in range(5, 10)] == [False, False, False, False, True]
    assert (retrace.compared, retrace.largest) == (5, 0.0)
    with pytest.raises(ResumeRefused, match=r"step 5 had a loss of 0\.2 "):
        Retrace(lines, "cpu", "fp32").compare(5, 0.2 + 2**-55)
    assert not Retrace(lines, "cuda", "bf16").compare(5, 0.2001)
    with pytest.raises(ResumeRefused):
        Retrace(lines, "cuda", "bf16").compare(5, 0.25)


def test_a_loss_that_is_not_a_number_never_continues_a_curve():
    with pytest.raises(ResumeRefused):
        prove_loss(1.0, lambda: float("nan"), tolerance("cuda", "bf16"), "00000004")
    with pytest.raises(ResumeRefused):
        Retrace([{"step": 1, "loss": 1.0}], "cuda", "bf16").compare(1, float("nan"))


def test_a_loss_that_errs_once_is_told_and_one_that_errs_twice_stops_the_resume():
    computed = iter([8.5, 8.0])
    found = prove_loss(8.0, lambda: next(computed), tolerance("cpu", "fp32"), "00000004")
    assert found == {"largest_difference": 0.0, "difference_at_first": 0.5}
    assert prove_loss(8.0, lambda: 8.0, tolerance("cpu", "fp32"), "00000004") == {"largest_difference": 0.0}
    with pytest.raises(ResumeRefused, match=r"was 8 when it was saved and is 8\.5 now"):
        prove_loss(8.0, lambda: 8.5, tolerance("cpu", "fp32"), "00000004")


def test_a_loss_that_erred_once_is_noted_in_both_languages(tmp_path):
    write_lines(tmp_path / "metrics.jsonl", [])
    write_lines(tmp_path / "sessions.jsonl", [{"session": 1, "from_step": 0, "passed_over": []}])
    assert training_notes(tmp_path, "en") == []  # nothing was resumed
    proof = {"session": 2, "proof": "pinned batch", "steps": 0, "loss": 8.0, "largest_difference": 0.0}
    write_lines(tmp_path / "continuity.jsonl", [proof, {**proof, "difference_at_first": 0.0625}])
    assert ["0.0625 off at first" in note for note in training_notes(tmp_path, "en")] == [True]
    assert ["首次计算相差 0.0625" in note for note in training_notes(tmp_path, "zh")] == [True]


def test_a_save_is_due_by_steps_and_by_minutes_whichever_comes_first():
    now = [0.0]
    trainer: Any = SimpleNamespace(
        save_minutes=30.0,
        save_steps=100,
        judge_after_step=None,
        job=SimpleNamespace(save_at=[]),
        after_save=lambda: None,
    )
    recorder = Recorder(trainer, clock=lambda: now[0])

    def due(step: int) -> bool:
        return recorder._minutes_over() or recorder._save_planned(step)

    assert [due(step) for step in (1, 99, 100)] == [False, False, True]
    now[0] = 30 * 60
    assert due(1)
    cast(Any, recorder).on_save(None, None, None)
    assert not due(2)
    trainer.save_minutes = None
    now[0] = 1e9
    assert not due(2)
