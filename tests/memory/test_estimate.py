"""Promises of the estimate: any architecture, a process of its own, the cache, and words for what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.errors import InputError, ModelError
from specs.parameters import TrainingConfiguration
from specs.project import Hardware
from tasks.memory import account_for, this_device
from tasks.memory.architecture import architecture_of
from tasks.memory.devices import cpu_device, named
from tasks.memory.prediction import covered
from tasks.memory.settings import from_training


def test_an_account_is_traced_in_a_process_of_its_own_and_kept(small: dict[str, Any], tmp_path: Path, gatewright_home):
    (tmp_path / "config.json").write_text(json.dumps(small | {"num_hidden_layers": 1}), "utf-8")
    device = this_device()
    training = TrainingConfiguration(micro_batch=2, gradient_accumulation=2)
    check = account_for(tmp_path, training, device, longest=100)
    assert check.fits
    assert check.method == "derived"
    assert check.residents["weights"] > 0
    kept = sorted((gatewright_home / "accounts").glob("family-*.json"))
    before = [p.stat().st_mtime_ns for p in kept]
    fewer = account_for(tmp_path, training.model_copy(update={"micro_batch": 1}), device, longest=50)
    assert fewer.peak_bytes < check.peak_bytes
    assert [p.stat().st_mtime_ns for p in sorted((gatewright_home / "accounts").glob("family-*.json"))] == before


def test_a_catalog_name_an_alias_and_a_file_give_an_architecture(small: dict[str, Any], tmp_path: Path):
    assert architecture_of("mistral-7b-v0.1")["hidden_size"] == 4096
    assert architecture_of("meta-llama/Llama-3.1-8B-Instruct")["model_type"] == "llama"
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "outer", "text_config": small}), "utf-8")
    assert architecture_of(file) == small == architecture_of(tmp_path)


@pytest.mark.parametrize("name", ["mistral-7b-v9", "./nowhere", "nowhere/config.json"])
def test_an_unknown_model_is_an_error_with_a_way_out(name: str):
    with pytest.raises(ModelError) as raised:
        architecture_of(name)
    assert raised.value.hint


def test_an_unreadable_configuration_is_named(tmp_path: Path):
    (tmp_path / "config.json").write_text("{", "utf-8")
    with pytest.raises(ModelError, match=r"config\.json"):
        architecture_of(tmp_path)


def test_a_named_card_replaces_the_one_that_is_here():
    card = this_device(Hardware(gpu="rtx 4090", count=2))
    assert (card.kind, card.count, card.here) == ("cuda", 2, False)
    assert 23.6 < card.usable_bytes / 2**30 < 23.7
    assert named("NVIDIA A100-SXM4-80GB").name == "A100 SXM4 80GB"
    assert named("RTX 3060").name == "RTX 3060 12GB"
    assert named("a new card", memory_gb=10).usable_bytes == 10 * 2**30


def test_an_unknown_card_names_its_neighbours():
    with pytest.raises(InputError, match="RTX 4090"):
        named("RTX 4099")


def test_computing_in_16_bits_from_32_bit_weights_is_refused(small: dict[str, Any]):
    with pytest.raises(InputError, match="16-bit weights"):
        from_training(small, TrainingConfiguration(compute="bf16"), 64, "cpu")


def test_training_processes_on_a_cpu_share_its_memory_and_each_hold_the_buckets_that_are_summed():
    device = cpu_device()
    assert device.per_rank(1) == device
    limited = device.within(device.usable_bytes // 3)
    assert limited.per_rank(2) == limited  # what one process may have is less than its share
    assert limited.per_rank(4).usable_bytes == device.usable_bytes // 4
    assert device.facts().keys() == limited.facts().keys()
    assert device.per_rank(4).usable_bytes == device.usable_bytes // 4
    assert (
        from_training({}, TrainingConfiguration(), 64, "cpu").gpus,
        from_training({}, TrainingConfiguration(), 64, "cpu").sharding,
    ) == (1, "none")
    two = from_training({}, TrainingConfiguration(ranks=2, gradient_accumulation=4), 64, "cpu")
    assert (two.gpus, two.sharding) == (2, "ddp")


@given(st.integers(1, 64), st.integers(1, 4096), st.integers(4, 64), st.integers(1, 128))
def test_a_shape_outside_what_was_traced_counts_as_one_inside_with_no_fewer_tokens_in_rows_no_shorter(
    rows, length, most_rows, shortest
):
    fewer, longer = covered(rows, length, most_rows, shortest)
    assert 1 <= fewer <= min(rows, most_rows)
    assert longer >= max(length, shortest)
    assert fewer * longer >= rows * length
    assert (fewer > 1) == (rows > 1)
    if rows <= most_rows and length >= shortest:
        assert (fewer, longer) == (rows, length)
