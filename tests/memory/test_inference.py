"""Promises of the inference account: the cache to the byte, by length, batch and type."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.memory.fit import account
from tasks.memory.settings import TraceSettings


def asked(small: dict[str, Any], **changed: Any) -> Any:
    values = {"architecture": small, "method": "inference", "weights": "bf16", "compute": "bf16", "micro_batch": 3}
    return account(TraceSettings(**{**values, "seq_len": 128, **changed}))


def test_the_cache_is_keys_and_values_of_every_layer_and_token(small: dict[str, Any]):
    found = asked(small)
    width = small["num_key_value_heads"] * small["hidden_size"] // small["num_attention_heads"]
    assert found.residents_by_phase["prefill"]["kv_cache"] == 2 * small["num_hidden_layers"] * 3 * 128 * width * 2
    assert found.trainable_parameters == 0
    assert found.disk_bytes == 0
    assert not {"gradients", "optimizer_states"} & set(found.residents)


def test_a_cache_of_one_byte_a_value_is_half_as_large(small: dict[str, Any]):
    whole, half = (asked(small, kv_dtype=kind).residents_by_phase["prefill"]["kv_cache"] for kind in ("bf16", "fp8"))
    assert half == pytest.approx(whole / 2, abs=1)


def test_only_the_last_position_has_logits(small: dict[str, Any]):
    few, many = (asked(small | {"vocab_size": size}).phases["prefill"] for size in (1024, 65536))
    weights = (65536 - 1024) * 128 * 2
    assert many - few - weights < 3 * 65536 * 6


def test_a_class_that_knows_few_attentions_is_traced_with_one_of_them():
    """GPT-J keeps a table of its own, without the name under which flash attention is traced."""
    tiny = {"model_type": "gptj", "vocab_size": 256, "n_embd": 64, "n_layer": 1, "n_head": 4, "rotary_dim": 8}
    assert asked(tiny, attention="flash", micro_batch=1, seq_len=16).phases["prefill"] > 0


def test_the_language_model_of_a_multimodal_configuration_is_traced(small: dict[str, Any]):
    text = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2}
    text |= {"num_key_value_heads": 1, "head_dim": 32, "vocab_size": 256}
    found = asked({"model_type": "gemma3", "text_config": text}, micro_batch=1, seq_len=16)
    assert found.total_parameters == pytest.approx(256 * 64 + 64 * 32 * 6 + 3 * 64 * 128, rel=0.02)
