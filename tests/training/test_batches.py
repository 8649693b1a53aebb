"""What is fed is what was planned: order, padding, mask, end token, and the weight of a micro batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.errors import InputError, TrainingError
from specs.parameters import LoraParameters
from tasks.data.batch_plan import PlanRow, plan_batches, write_plan
from tasks.prompts import Encoded, PromptTemplate
from tasks.training.collate import IGNORED, collate, learnt_tokens
from tasks.training.feed import Feed, check_lengths, group_steps, read_samples
from tests.support.forked import train
from tests.support.samples import small_training, training_samples

samples = st.lists(
    st.integers(1, 30).flatmap(
        lambda n: st.tuples(st.lists(st.integers(0, 9), min_size=n, max_size=n), st.integers(0, n))
    ),
    min_size=1,
    max_size=5,
)


@settings(deadline=None)
@given(samples, st.integers(0, 9), st.integers(0, 5))
def test_padding_is_masked_by_length_and_the_end_is_learnt_even_where_it_is_the_padding_token(found, pad, extra):
    encoded = [Encoded(ids, start) for ids, start in found]
    width = max(len(s.input_ids) for s in encoded) + extra
    tensors = collate(encoded, width, pad)
    for row, sample in enumerate(encoded):
        n = len(sample.input_ids)
        assert tensors["input_ids"][row].tolist() == sample.input_ids + [pad] * (width - n)
        assert tensors["attention_mask"][row].tolist() == [1] * n + [0] * (width - n)
        labels = tensors["labels"][row].tolist()
        assert labels[: sample.trainable_from] == [IGNORED] * sample.trainable_from
        assert labels[sample.trainable_from : n] == sample.input_ids[sample.trainable_from :]
        assert labels[n:] == [IGNORED] * (width - n)
        assert learnt_tokens(sample) == sum(label != IGNORED for label in labels[1:])


def test_a_sample_longer_than_its_place_is_never_cut():
    with pytest.raises(ValueError, match="does not fit"):
        collate([Encoded([1, 2, 3], 1)], 2, 0)


def test_steps_are_those_of_the_plan_and_resuming_is_starting_at_a_row():
    rows = plan_batches([(f"s{i}", 5 + i % 7) for i in range(23)], small_training(max_steps=None))
    steps = group_steps(rows)
    flat = [i for step in steps for batch in step.micro_batches for i in batch.sample_ids]
    assert flat == [row.sample_id for row in rows]
    assert [step.first_row for step in steps[1:]] == [step.end_row for step in steps[:-1]]
    assert rows[steps[3].first_row].step == 4
    encoded = {row.sample_id: Encoded(list(range(row.n_tokens)), 2) for row in rows}
    resumed = [step.planned for step in Feed(steps, encoded, 0, start=3)]
    assert resumed == steps[3:]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[1:],
        lambda rows: rows[6:] + rows[:6],
        lambda rows: [*rows[2:4], *rows[:2], *rows[4:]],
        lambda rows: [],
    ],
)
def test_a_plan_out_of_order_is_refused(change):
    rows = plan_batches([(f"s{i}", 5) for i in range(12)], small_training(max_steps=None))
    with pytest.raises(TrainingError):
        group_steps(change(rows))


def test_planned_samples_that_are_not_there_are_refused(samples_file, tiny_model):
    template = PromptTemplate.load(tiny_model)
    with pytest.raises(InputError, match=r"not in samples\.parquet, the first zzz"):
        read_samples(samples_file, {"s0001", "zzz"}, template)


def test_another_length_than_planned_is_refused(samples_file, tiny_model):
    found = read_samples(samples_file, {"s0001"}, PromptTemplate.load(tiny_model))
    n = len(found["s0001"].input_ids)
    check_lengths([PlanRow(1, 1, 0, 0, 0, "s0001", n, n)], found)
    with pytest.raises(TrainingError, match="another length"):
        check_lengths([PlanRow(1, 1, 0, 0, 0, "s0001", n - 1, n)], found)


def losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_one_by_eight_equals_eight_by_one(job_in, samples_file, tmp_path):
    lora = LoraParameters(rank=4, alpha=8, dropout=0.0)
    for name, micro_batch, accumulation, ranks in (
        ("1x8", 1, 8, 1),
        ("8x1", 8, 1, 1),
        ("2x4", 2, 4, 1),
        ("2 ranks x 4", 2, 4, 2),
    ):
        shape = {"micro_batch": micro_batch, "gradient_accumulation": accumulation, "ranks": ranks}
        training = small_training(lora=lora, max_steps=6, save_steps=6, **shape)
        assert train(job_in(tmp_path / name, training)).code == 0
    assert len(training_samples(samples_file)) % 8 == 0
    reference = losses(tmp_path / "8x1" / "out")
    for name in ("1x8", "2x4", "2 ranks x 4"):
        assert losses(tmp_path / name / "out") == pytest.approx(reference, abs=0, rel=1e-6)


def test_filled_micro_batches_take_fewer_passes_and_change_no_loss(job_in, tmp_path):
    """It is read back from the plan as in effect, else the training would not begin."""
    lora = LoraParameters(rank=4, alpha=8, dropout=0.0)
    for fill in (False, True):
        training = small_training(lora=lora, fill_micro_batches=fill, max_steps=5, save_steps=5)
        assert train(job_in(tmp_path / str(fill), training)).code == 0
    plain, filled = (
        len((tmp_path / name / "out" / "micro_batches.jsonl").read_text().splitlines()) for name in ("False", "True")
    )
    assert filled < plain
    assert losses(tmp_path / "True" / "out") == pytest.approx(losses(tmp_path / "False" / "out"), abs=0, rel=1e-6)


def test_a_plan_that_is_not_filled_where_filling_was_asked_for_is_a_setting_without_effect(job_in, tmp_path):
    job = job_in(tmp_path, small_training(fill_micro_batches=True))
    write_plan(
        plan_batches(training_samples(tmp_path / "samples.parquet"), small_training()), tmp_path / "batch_plan.parquet"
    )
    ended = train(job)
    assert ended.code != 0
    assert "settings without effect" in ended.error()["message"]
    assert "fill_micro_batches" in ended.error()["message"]


@pytest.mark.slow
def test_a_token_budget_cuts_steps_into_more_micro_batches_and_changes_no_loss(job_in, samples_file, tmp_path):
    """The budget is read back from the plan as in effect, else the training would not begin."""
    lora = LoraParameters(rank=4, alpha=8, dropout=0.0)
    longest = max(n for _, n in training_samples(samples_file))
    settings = {"lora": lora, "micro_batch": 4, "gradient_accumulation": 2, "max_steps": 5, "save_steps": 5}
    for name, budget in (("free", None), ("bound", longest)):
        training = small_training(max_tokens_per_micro_batch=budget, **settings)
        assert train(job_in(tmp_path / name, training)).code == 0
    free, bound = (
        len((tmp_path / n / "out" / "micro_batches.jsonl").read_text().splitlines()) for n in ("free", "bound")
    )
    assert bound > free
    assert losses(tmp_path / "bound" / "out") == pytest.approx(losses(tmp_path / "free" / "out"), abs=0, rel=1e-6)


def test_fed_samples_show_what_is_learnt(uninterrupted, samples_file):
    import pyarrow.parquet as pq

    rows = {row["sample_id"]: row for row in pq.read_table(samples_file).to_pylist()}
    fed = [json.loads(line) for line in (uninterrupted / "fed.jsonl").read_text().splitlines()]
    assert len(fed) == 8
    for line in fed:
        row = rows[line["sample_id"]]
        assert line["text"] == row["text"]
        assert line["learnt"].startswith(row["answer"])
        assert line["learnt_padding"] == 0
        assert line["last_token"] == line["last_label"] == line["end_token"]
        assert line["tokens"] == row["n_tokens"]
