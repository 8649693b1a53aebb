"""Promises of the division among ranks: nothing grows with more ranks, and what leaves the GPU arrives on the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.memory.fsdp2 import WORKSPACES
from tasks.memory.host import host
from tasks.memory.ranks import Whole
from tasks.memory.settings import TraceSettings
from tasks.memory.sharding import rank_of
from tasks.memory.timeline import Place
from tasks.memory.traced import Trace

MIB = 2**20
SCHEMES = st.sampled_from(["zero1", "zero2", "zero3", "fsdp"])
PLACES = [
    Place("forward", "layer", 0),
    Place("loss", "loss"),
    Place("backward", "layer", -1),
    Place("backward", "layer", 0),
    Place("optimizer", "step"),
]


def whole(trained: float = 1.0) -> Whole:
    """32 layers of 100 MiB, 128 MiB outside of them, in bf16."""
    weights = (32 * 100 + 128) * MIB
    return Whole(
        layers=32,
        weight_bytes=weights,
        buffer_bytes=MIB,
        layer_weight_bytes=100 * MIB,
        total_parameters=weights // 2,
        trainable_parameters=round(weights // 2 * trained),
        trainable_bytes=round(weights * trained),
        state_bytes=round(2 * weights * trained),
        layer_input_bytes=16 * MIB,
        hidden_size=1024,
    )


def parts(place: Place) -> dict[str, float]:
    """What a trace of one device might hold at a place."""
    done = 31 if place.layer == 0 and place.phase == "backward" else 0
    found = {
        "weights": 3329.0 * MIB,
        "optimizer_states": 6656.0 * MIB,
        "activations": 700.0 * MIB,
        "temporary": 90.0 * MIB,
    }
    if place.phase in ("backward", "optimizer"):
        found["gradients"] = 3328.0 * MIB if place.phase == "optimizer" else (100.0 * done + 128) * MIB
    return found


def settings(**changed: Any) -> TraceSettings:
    values = {"architecture": {"model_type": "llama"}, "method": "full", "weights": "bf16", "compute": "bf16"}
    return TraceSettings(**{**values, "activation_checkpointing": True, **changed})


@given(SCHEMES, st.integers(1, 256), st.integers(2, 16), st.sampled_from(PLACES))
def test_more_ranks_never_need_more(scheme: Any, ranks: int, times: int, place: Place):
    few, many = (
        sum(rank_of(whole(), settings(sharding=scheme, gpus=n)).at(place, parts(place)).values())
        for n in (ranks, ranks * times)
    )
    assert many <= few


@given(st.integers(2, 64), st.sampled_from(PLACES))
def test_a_later_stage_of_zero_never_holds_more_weights_gradients_and_states(ranks: int, place: Place):
    divided = ("weights", "gradients", "optimizer_states")
    held = []
    for stage in ("zero1", "zero2", "zero3"):
        found = rank_of(whole(), settings(sharding=stage, gpus=ranks)).at(place, parts(place))
        held.append(sum(found.get(name, 0) for name in divided))
    assert held[0] >= held[1] >= held[2]


@pytest.mark.parametrize(("scheme", "offload"), [("zero2", "optimizer"), ("zero3", "all"), ("fsdp", "all")])
def test_what_is_offloaded_leaves_the_gpu_and_is_counted_on_the_host(scheme: Any, offload: Any):
    place = PLACES[2]
    without = rank_of(whole(), settings(sharding=scheme, gpus=4))
    with_it = rank_of(whole(), settings(sharding=scheme, gpus=4, offload=offload))
    on_gpu, left = (sum(rank.at(place, parts(place)).values()) for rank in (without, with_it))
    assert without.host_bytes() == 0
    assert on_gpu - left >= whole().state_bytes / 4 * 0.99
    assert with_it.host_bytes() >= on_gpu - left


def test_what_is_offloaded_is_pinned_by_every_rank_of_a_machine():
    sizes = whole()
    trace = Trace(
        peaks={},
        trainable_parameters=sizes.trainable_parameters,
        total_parameters=sizes.total_parameters,
        weight_bytes=sizes.weight_bytes,
        trainable_bytes=sizes.trainable_bytes,
        state_bytes=sizes.state_bytes,
        paged_bytes=0,
        buffer_bytes=MIB,
        layers=sizes.layers,
        layer_input_bytes=sizes.layer_input_bytes,
    )
    asked = settings(sharding="zero3", gpus=8, nodes=2, offload="all")
    offloaded = rank_of(sizes, asked).host_bytes()
    kept, pinned = host(trace, asked), host(trace, asked, offloaded)
    assert (kept.pinned_bytes, pinned.pinned_bytes) == (0, 4 * round(offloaded))
    assert pinned.peak_bytes - kept.peak_bytes == pinned.pinned_bytes > 0


def test_replicas_hold_their_gradients_twice():
    found = rank_of(whole(), settings(sharding="ddp", gpus=8)).at(PLACES[2], parts(PLACES[2]))
    assert found["communication"] == whole().trainable_bytes
    assert found["weights"] == parts(PLACES[2])["weights"]


def test_reentrant_checkpoints_of_frozen_layers_stay_until_backward_ends():
    """2024: hooks on the inputs of frozen layers held them and their gradients. Today's checkpointing does not."""
    last, first = PLACES[2], PLACES[3]
    adapters = whole(trained=0.002)

    def activations(path: Any, place: Place) -> float:
        rank = rank_of(adapters, settings(method="lora", sharding="fsdp", gpus=2, loss_path=path))
        return rank.at(place, parts(place))["activations"]

    assert activations("hf-2024", last) == activations("current", last) == 700 * MIB
    assert activations("hf-2024", first) - activations("current", first) == (2 * 31 - 1) * 16 * MIB


@pytest.mark.parametrize("scheme", ["zero2", "zero3", "fsdp"])
def test_gradients_of_earlier_micro_batches_are_shards(scheme: Any):
    """While a micro batch runs, a rank holds its share of all gradients, never all of them."""
    asked = settings(sharding=scheme, gpus=8, gradient_accumulation=4)
    everywhere = {**parts(PLACES[0]), "gradients": 3328.0 * MIB}
    found = rank_of(whole(), asked).at(PLACES[0], everywhere)
    assert found["gradients"] == 3328 * MIB / 8


@pytest.mark.parametrize(("optimizer", "states"), [("adamw", 8), ("sgd", 0), ("adamw_8bit", 2)])
def test_zero_divides_an_fp32_copy_and_the_states_of_the_optimizer(optimizer: Any, states: int):
    values = whole().total_parameters
    kept = {"adamw": 4, "sgd": 0, "adamw_8bit": 2}[optimizer]  # of 16-bit weights in the trace
    sized = replace(whole(), state_bytes=kept * values)
    found = rank_of(sized, settings(sharding="zero1", gpus=4, optimizer=optimizer)).at(PLACES[0], parts(PLACES[0]))
    assert found["optimizer_states"] == (4 + states) * values / 4


def test_mixed_precision_keeps_fp32_shards():
    amp = rank_of(whole(), settings(sharding="fsdp", gpus=2, compute="amp-bf16"))
    pure = rank_of(whole(), settings(sharding="fsdp", gpus=2))
    wanted, found = (rank.at(PLACES[4], parts(PLACES[4])) for rank in (pure, amp))
    for name in ("optimizer_states", "gradients"):
        assert found[name] == 2 * wanted[name]
    assert found["temporary"] - WORKSPACES == 2 * (wanted["temporary"] - WORKSPACES)


def sized(values: float, layers: int = 32) -> Whole:
    """A full fine-tuning in bf16 of so many values, all in layers."""
    return replace(
        whole(),
        layers=layers,
        weight_bytes=round(2 * values),
        layer_weight_bytes=round(2 * values / layers),
        total_parameters=round(values),
        trainable_parameters=round(values),
        trainable_bytes=round(2 * values),
        state_bytes=round(4 * values),
    )


@given(st.floats(2e9, 2e11), st.integers(1, 64))
def test_stage_3_steps_as_many_values_at_a_time_however_large_its_share_is(values: float, ranks: int):
    """Beside its share of states and of 16-bit gradients stands what one group needs, of 1e9 values at most."""
    rank = rank_of(sized(values), settings(sharding="zero3", gpus=ranks, optimizer="adamw_fused"))
    at_step = rank.at(PLACES[4], {"temporary": 0.0})
    beside = at_step["gradients"] + at_step["temporary"] - 2 * values / ranks
    assert beside == pytest.approx(6 * min(values / ranks, 1e9), rel=1e-6)


def test_stages_1_and_2_step_their_whole_share_at_once():
    for scheme in ("zero1", "zero2"):
        rank = rank_of(sized(16e9), settings(sharding=scheme, gpus=4, optimizer="adamw_fused"))
        at_step = rank.at(PLACES[4], {"temporary": 0.0})
        assert at_step["gradients"] + at_step["temporary"] == 8 * 4e9


def test_an_optimizer_that_works_on_copies_needs_them_for_one_group():
    rank = rank_of(sized(16e9), settings(sharding="zero3", gpus=4, optimizer="adamw"))
    copies_in_bf16 = 2 * 16e9
    assert rank.at(PLACES[4], {"temporary": copies_in_bf16})["temporary"] == 4 * 1e9


def test_stage_3_holds_a_buffer_for_its_gradients_before_there_are_any():
    rank = rank_of(sized(8e9), settings(sharding="zero3", gpus=4))
    assert rank.at(PLACES[0], {})["gradients"] == 2 * 8e9 / 4


@given(st.floats(1e8, 1e11), st.integers(2, 100), st.booleans())
def test_layers_that_stay_gathered_are_few_enough_to_be_used_again_in_time(values: float, layers: int, again: bool):
    model = sized(values, layers)
    rank = rank_of(model, settings(sharding="zero3", gpus=8, activation_checkpointing=again))
    stay = (
        rank.at(Place("loss", "loss"), {})["gathered"] - 0.9 * 2 * model.hidden_size**2 - model.root_weight_bytes
    ) / (model.layer_weight_bytes)
    between = (3 if again else 2) * (stay - 1) * values / layers
    assert 1 <= round(stay) <= layers
    assert between < 1e9 * 1.000001
    first = rank.at(Place("forward", "layer", 0), {})["gathered"]
    assert first <= rank.at(Place("forward", "layer", -1), {})["gathered"]
