"""Samples that share a row: the same steps, the same losses, and no sample sees another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.errors import ModelError
from specs.files import read_lines
from specs.parameters import LoraParameters
from tasks.data.batch_plan import plan_batches
from tasks.prompts import Encoded, PromptTemplate
from tasks.training import packing
from tasks.training.collate import IGNORED, collate_rows, learnt_tokens
from tasks.training.feed import Feed, group_steps, read_samples
from tasks.training.models import build_trainable, check_possible
from tasks.training.packing import chosen_batch, prove_separation, require_separation
from tasks.training.recorder import describe_fed
from tests.support.forked import train
from tests.support.samples import make_job, small_training, training_samples

encoded_samples = st.lists(
    st.integers(2, 30).flatmap(
        lambda n: st.tuples(st.lists(st.integers(0, 9), min_size=n, max_size=n), st.integers(0, n - 1))
    ),
    min_size=1,
    max_size=6,
)


@settings(deadline=None)
@given(encoded_samples, st.integers(0, 9), st.integers(0, 5))
def test_each_sample_stands_once_in_its_row_with_positions_of_its_own_and_its_first_token_is_not_learnt(
    found, pad, extra
):
    encoded = [Encoded(ids, start) for ids, start in found]
    lengths = [len(s.input_ids) for s in encoded]
    places = [(0, sum(lengths[:k])) for k in range(len(encoded))]
    tensors = collate_rows(encoded, places, sum(lengths) + extra, pad)
    for sample, (row, start) in zip(encoded, places, strict=True):
        end = start + len(sample.input_ids)
        assert tensors["input_ids"][row, start:end].tolist() == sample.input_ids
        assert tensors["position_ids"][row, start:end].tolist() == list(range(end - start))
        labels = tensors["labels"][row, start:end].tolist()
        assert labels[0] == IGNORED
        assert sum(label != IGNORED for label in labels) == learnt_tokens(sample)
        assert labels[max(1, sample.trainable_from) :] == sample.input_ids[max(1, sample.trainable_from) :]
    rest = sum(lengths)
    assert tensors["labels"][0, rest:].tolist() == [IGNORED] * extra
    assert tensors["position_ids"][0, rest:].tolist() == list(range(extra))


def test_samples_that_overlap_or_do_not_fit_are_never_fed():
    two = [Encoded([1, 2, 3], 1), Encoded([4, 5], 1)]
    for places, width in (([(0, 0), (0, 2)], 8), ([(0, 0), (0, 4)], 8), ([(0, 0), (0, 3)], 4)):
        with pytest.raises(ValueError, match="does not fit"):
            collate_rows(two, places, width, 0)


def packed_feed(samples_file: Path, model: Path, **changes) -> Feed:
    training = small_training(packing=True, max_steps=None, epochs=1, **changes)
    rows = plan_batches(training_samples(samples_file), training)
    template = PromptTemplate.load(model)
    return Feed(group_steps(rows), read_samples(samples_file, {r.sample_id for r in rows}, template), 0)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_no_sample_sees_another_and_each_has_the_loss_that_it_has_alone(samples_file, tiny_model, attention):
    feed = packed_feed(samples_file, tiny_model)
    model = build_trainable(tiny_model, small_training(attention=attention), "cpu")
    proof = prove_separation(model, feed, "cpu", "fp32")
    assert proof is not None
    assert proof.attention == attention
    later = [s for s in proof.samples if s.start]
    assert later
    assert all(s.logit_difference == 0.0 for s in later)
    assert max(abs(s.loss - s.loss_alone) for s in proof.samples) < 1e-5
    require_separation(proof)


def test_a_model_that_mixes_the_samples_of_a_row_is_refused(samples_file, tiny_model, monkeypatch):
    """With a mask given, transformers takes a row for one sequence: what the proof is for."""
    feed = packed_feed(samples_file, tiny_model)
    model = build_trainable(tiny_model, small_training(), "cpu")

    def together(model, tensors):
        return model(input_ids=tensors["input_ids"], attention_mask=torch.ones_like(tensors["input_ids"])).logits

    monkeypatch.setattr(packing, "logits_of", together)
    proof = prove_separation(model, feed, "cpu", "fp32")
    assert proof is not None
    with pytest.raises(ModelError, match="does not keep samples of a row apart"):
        require_separation(proof)


def test_a_plan_without_a_shared_row_has_nothing_to_prove(samples_file):
    rows = plan_batches(training_samples(samples_file), small_training())
    assert chosen_batch(group_steps(rows)) is None


def test_flash_attention_is_refused_where_it_cannot_tell_rows_apart():
    with pytest.raises(ModelError) as caught:
        check_possible(small_training(packing=True, attention="flash", micro_batch=2), "cuda")
    assert "only with one row per forward pass" in caught.value.message
    assert "micro_batch: 1" in caught.value.hint


def test_what_was_fed_is_told_sample_by_sample(samples_file, tiny_model):
    feed = packed_feed(samples_file, tiny_model)
    tokenizer = PromptTemplate.load(tiny_model).tokenizer
    for planned in feed.steps[0].micro_batches:
        batch = feed.batch(planned)
        told = [describe_fed(batch, k, i, tokenizer) for k, i in enumerate(planned.sample_ids)]
        assert [line["tokens"] for line in told] == [len(feed.samples[i].input_ids) for i in planned.sample_ids]
        assert sum(line["padded_tokens"] for line in told) == batch.padded_tokens
        for line, sample_id in zip(told, planned.sample_ids, strict=True):
            assert line["learnt_tokens"] == learnt_tokens(feed.samples[sample_id])
            assert line["learnt_padding"] == 0
            assert line["last_token"] == line["last_label"] == line["end_token"]


def test_a_packed_training_brings_the_losses_of_the_unpacked_one_in_fewer_passes(job_in, samples_file, tmp_path):
    changes = {"lora": LoraParameters(rank=4, alpha=8, dropout=0.0), "max_steps": 5, "save_steps": 5}
    for name, packed in (("packed", True), ("apart", False)):
        assert train(job_in(tmp_path / name, small_training(packing=packed, **changes))).code == 0
    logs = [read_lines(tmp_path / name / "out" / "metrics.jsonl") for name in ("packed", "apart")]
    packed, apart = ([line["loss"] for line in log] for log in logs)
    assert packed == pytest.approx(apart, rel=1e-5)
    passes = {n: len(read_lines(tmp_path / n / "out/micro_batches.jsonl")) for n in ("packed", "apart")}
    assert passes["packed"] < passes["apart"]
    found = json.loads((tmp_path / "packed/out/settings.json").read_bytes())
    assert found["effective"]["packing"] is True
    assert (tmp_path / "packed/out/packing.json").is_file()
    assert not (tmp_path / "apart/out/packing.json").exists()


def test_a_packed_training_that_was_killed_goes_on_bit_for_bit(tiny_model, samples_file, tmp_path):
    for name, changes in (("whole", {}), ("cut", {"kill_after_step": 3})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "samples.parquet").write_bytes(samples_file.read_bytes())
        training = small_training(packing=True, max_steps=5)
        job = make_job(tmp_path / name, tiny_model, training, **changes)
        assert (train(job).code == 0) == (name == "whole")
    assert train(make_job(tmp_path / "cut", tiny_model, training)).code == 0
    weights = [(tmp_path / n / "out/adapter/adapter_model.safetensors").read_bytes() for n in ("whole", "cut")]
    assert weights[0] == weights[1]
