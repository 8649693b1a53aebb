"""Trainers that shard and step by code of their own, traced on a rank: prime-rl's on compiled layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from specs.errors import InputError
from tasks.memory.asked import settings_of
from tasks.memory.policy import trace_own
from tasks.memory.settings import TraceSettings
from tasks.memory.traced import Trace, by_phase

TOKENS, VOCABULARY = 2048, 20480
ARCHITECTURE: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": True,
}
OPTIONS: dict[str, Any] = {
    "method": "full",
    "weights": "fp32",
    "compute": "amp-bf16",
    "attention": "flash",
    "seq_len": TOKENS,
    "activation_checkpointing": True,
    "gradient_accumulation": 2,
    "sharding": "fsdp",
    "loss_path": "prime-rl-2026-01",
}


def traced(**changed: Any) -> Trace:
    return trace_own(settings_of(ARCHITECTURE, OPTIONS | changed))


@pytest.fixture(scope="module")
def alone() -> Trace:
    """Full fine-tuning on one GPU."""
    return traced()


def test_one_gpu_keeps_fp32_shards_gradients_and_states_and_a_transient_of_the_step(alone: Trace):
    step = by_phase(alone.peaks)["optimizer"].residents
    values = alone.trainable_parameters
    assert step["weights"] >= 4 * values
    assert step["gradients"] == pytest.approx(4 * values, rel=0.01)
    assert step["optimizer_states"] == pytest.approx(8 * values, rel=0.01)
    assert step["temporary"] >= 4 * values


def test_gradients_come_from_the_pool_of_the_stream_that_reduces(alone: Trace):
    largest = 4 * VOCABULARY * ARCHITECTURE["hidden_size"]
    reduced = max(alone.streams["reduced"].values())
    assert reduced >= 4 * alone.trainable_parameters + largest  # the last unit's come beside all that are there
    assert alone.reserved_bytes >= sum(max(p.values()) for p in alone.streams.values())
    assert "gathered" not in alone.streams  # with one rank nothing is gathered


@pytest.mark.slow
def test_five_fp32_chunks_of_the_vocabulary_stand_beside_each_other_in_the_backward_pass(alone: Trace):
    chunk = 4 * TOKENS * 2048
    wider = traced(loss_path="prime-rl-2026-02")
    more = by_phase(wider.peaks)["backward"].total - by_phase(alone.peaks)["backward"].total
    assert more == pytest.approx(5.5 * 3 * chunk, rel=0.02)  # and one in 16 bits; 8192 entries instead of 2048


@pytest.mark.slow
def test_adapters_have_gradients_in_every_slot_and_no_optimizer():
    found = traced(method="lora", rank=8)
    assert found.state_bytes == 0
    assert "optimizer" not in by_phase(found.peaks)
    assert by_phase(found.peaks)["backward"].residents["gradients"] >= found.trainable_bytes
    assert found.trainable_parameters % 4 == 0
    alone = traced(method="lora", rank=8, loss_path="prime-rl-sft")  # one slot, which an optimizer steps
    assert 4 * alone.trainable_parameters == found.trainable_parameters
    assert alone.state_bytes >= 8 * alone.trainable_parameters


@pytest.mark.slow
def test_activations_on_the_host_leave_one_layer_s_on_the_device():
    deep = ARCHITECTURE | {"num_hidden_layers": 4, "hidden_size": 256}
    there, away = (
        by_phase(trace_own(settings_of(deep, OPTIONS | {"offload_activations": on})).peaks)["forward"].total
        for on in (False, True)
    )
    assert there - away >= 2 * 2 * TOKENS * 256


@pytest.mark.slow
def test_logits_of_the_micro_batch_before_live_through_the_next_forward_pass():
    found = traced(loss_path="prime-rl-sft")
    assert by_phase(found.peaks)["forward"].total >= by_phase(found.peaks)["optimizer"].residents["weights"] + (
        4 * TOKENS * VOCABULARY
    )


@pytest.mark.slow
def test_compiling_a_checkpointed_layer_that_branches_on_data_compiles_nothing():
    """What makes these layers run as they are written, in the torch that is installed."""
    seen: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        seen.append(graph)
        return graph

    class Layer(nn.Module):
        def __init__(self, branches: bool) -> None:
            super().__init__()
            self.linear, self.branches = nn.Linear(8, 8), branches

        def forward(self, values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            after = torch.relu(self.linear(values))
            if self.branches and (torch.arange(4) - positions).abs().sum().bool():
                after = after * 2
            return values + after

    wrapping: Any = checkpoint_wrapper
    for branches in (False, True):
        seen.clear()
        layer = wrapping(Layer(branches), preserve_rng_state=False)
        layer.compile(backend=backend)
        layer(torch.randn(4, 8, requires_grad=True), torch.arange(4)).sum().backward()
        assert bool(seen) is not branches


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"sharding": "none"}, "--sharding fsdp"),
        ({"method": "dora"}, "--method full or lora"),
        ({"weights": "bf16", "compute": "bf16"}, "--weights fp32"),
        ({"attention": "sdpa"}, "--attention flash"),
        ({"loss_path": "current", "offload_activations": True}, "--offload-activations"),
    ],
)
def test_what_such_a_trainer_does_not_do_is_refused_with_the_way_out(changed: dict[str, Any], named: str):
    with pytest.raises(InputError) as refused:
        settings_of(ARCHITECTURE, OPTIONS | changed)
    assert named in refused.value.hint


def test_settings_written_before_this_existed_are_read_as_before():
    assert TraceSettings.model_validate({"architecture": {}}).offload_activations is False
