"""The early judgement says go on, ask or stop, on a fixed set of held-out samples and within the memory of a step."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.data.batch_plan import plan_batches
from tasks.prompts import Encoded
from tasks.training.feed import Feed
from tasks.training.judgement import GO_ON, MOST_JUDGED, choose_judged, judge, judge_step
from tasks.training.launch import training_notes
from tests.support.forked import train
from tests.support.samples import small_training, training_samples

lengths = st.lists(st.integers(1, 300), max_size=200)


@given(lengths, st.integers(1, 400))
def test_what_is_measured_is_spread_over_the_lengths_and_fits_a_training_micro_batch(found, most):
    samples = [(f"s{n:03d}", tokens) for n, tokens in enumerate(found)]
    chosen, too_long = choose_judged(samples, most)
    of = dict(samples)
    assert too_long == sum(tokens > most for tokens in found)
    assert len(chosen) == len(set(chosen)) == min(MOST_JUDGED, len(found) - too_long)
    assert all(of[i] <= most for i in chosen)
    if chosen:
        assert min(of[i] for i in chosen) == min(t for t in found if t <= most)


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(1, 8), st.integers(60, 400))
def test_no_batch_of_an_evaluation_has_more_samples_or_tokens_than_allowed(found, size, most):
    encoded = {f"s{n:02d}": Encoded([1] * tokens, 0) for n, tokens in enumerate(found)}
    batches = list(Feed([], encoded, 0).batches(list(encoded), size, most))
    assert sorted(i for b in batches for i in b.planned.sample_ids) == sorted(encoded)
    assert all(len(b.planned.sample_ids) <= size and b.padded_tokens <= most for b in batches)


def judged(changes: list[float], bound: float = 0.0) -> str:
    before = {f"s{n}": 2.0 for n in range(len(changes))}
    return judge(before, {f"s{n}": 2.0 + c for n, c in enumerate(changes)}, step=7, epoch=1, bound=bound).verdict


@pytest.mark.parametrize(
    ("changes", "bound", "verdict"),
    [
        ([-0.5, -0.4, -0.6, -0.5], 0.0, "go on"),
        ([0.5, 0.4, 0.6, 0.5], 0.0, "stop"),
        ([0.5, -0.4, 0.6, -0.5], 0.0, "ask"),
        ([-0.5, -0.4, -0.6, -0.5], -1.0, "stop"),
        ([-0.5, -0.4, -0.6], 0.0, "not judged"),
    ],
)
def test_the_verdict_is_the_change_against_its_own_noise(changes, bound, verdict):
    assert judged(changes, bound) == verdict


def test_it_is_made_after_the_first_of_several_epochs_or_a_share_of_the_steps_never_at_the_end():
    samples = [(f"s{n:02d}", 10) for n in range(24)]
    two = plan_batches(samples, small_training(epochs=2, max_steps=None))
    one = plan_batches(samples, small_training(epochs=1, max_steps=None))
    assert (judge_step(two, None), judge_step(two, 0.25), judge_step(two, 0.99)) == (4, 2, 7)
    assert (judge_step(one, None), judge_step(one, 0.5)) == (None, 2)


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", ["start 2: went on from step 4", "loss spikes: 1 steps noted", "early judgement: go on", "2 held-out"]),
        ("zh", ["第 2 次启动：从第 4 步继续", "损失尖峰：1 步（仅记录）", "早期评判（第 7 步）：继续", "2 条留出样本"]),
    ],
)
def test_what_happened_on_the_way_is_said_in_the_language_of_the_project(language, words, tmp_path):
    sessions = [{"session": n, "from_step": 4 * (n - 1), "passed_over": []} for n in (1, 2)]
    steps = [{"step": 1}, {"step": 2, "spike": "noted"}]
    for name, lines in (("sessions.jsonl", sessions), ("metrics.jsonl", steps)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = {f"s{n}": 2.0 for n in range(4)}
    now = {i: 1.5 - n / 100 for n, i in enumerate(before)}
    found = judge(before, now, step=7, epoch=1, bound=0.0, too_long=2)
    (tmp_path / "judgement.json").write_text(found.model_dump_json())
    notes = "\n".join(training_notes(tmp_path, language))
    assert all(word in notes for word in words)


@pytest.mark.skipif(os.name == "nt", reason="training on Windows is by WSL2")
def test_stop_ends_the_training_each_time_until_a_person_lets_it_go_on_from_the_kept_checkpoint(
    job_in, samples_file, tmp_path
):
    held_out = [i for i, _ in training_samples(samples_file, "eval")]
    job = job_in(tmp_path, judge_after_step=3, judge_sample_ids=held_out, judge_bound=-100.0)
    for _ in range(2):
        error = train(job).error()
        assert error["class"] == "TrainingError"
        assert error["message"].startswith("early judgement: stop; after step 3 the held-out loss is")
        assert "resume --anew" in error["hint"]
    found = json.loads((tmp_path / "out" / "judgement.json").read_text())
    assert (found["verdict"], found["samples"]) == ("stop", 8)
    assert (tmp_path / "checkpoints" / "00000003" / "manifest.json").is_file()
    (tmp_path / "out" / GO_ON).write_text('{"reason": "seen"}')
    went_on = train(job).result()
    assert (went_on["finished"], went_on["resumed_from"]) == (True, 3)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="training on Windows is by WSL2")
def test_ask_ends_the_training_once_and_a_resume_is_the_answer(job_in, samples_file, tmp_path):
    held_out = [i for i, _ in training_samples(samples_file, "eval")]
    judging = {"judge_after_step": 3, "judge_sample_ids": held_out}
    first = job_in(tmp_path / "a", training=small_training(early_judgement="note"), **judging)
    assert train(first).code == 0
    change = json.loads((tmp_path / "a" / "out" / "judgement.json").read_text())["change"]
    job = job_in(tmp_path / "b", **judging, judge_bound=change)
    error = train(job).error()
    assert "the rest is for a person to decide" in error["message"]
    assert train(job).result()["finished"]
    weights = "out/adapter/adapter_model.safetensors"
    assert (tmp_path / "a" / weights).read_bytes() == (tmp_path / "b" / weights).read_bytes()
