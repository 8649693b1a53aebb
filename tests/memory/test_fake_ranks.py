"""FSDP2 as torch and accelerate run it on a process group without other ranks, against the closed form."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.memory import fit
from tasks.memory.fold import folded_sharded
from tasks.memory.settings import TraceSettings
from tasks.memory.sharded import trace_sharded
from tasks.memory.traced import Trace, by_phase

RANKS, LAYERS, HIDDEN = 4, 4, 512
ARCHITECTURE = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": 1408,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 8000,
}


def settings(**changed: Any) -> TraceSettings:
    values: dict[str, Any] = {
        "architecture": ARCHITECTURE,
        "method": "full",
        "weights": "bf16",
        "compute": "bf16",
        "activation_checkpointing": True,
        "micro_batch": 2,
        "seq_len": 512,
        "optimizer": "adamw_fused",
        "gpus": RANKS,
        "sharding": "fsdp",
    }
    return TraceSettings(**{**values, **changed})


def closed(asked: TraceSettings) -> dict[str, float]:
    """The peak of every phase in closed form, from the trace of one device."""
    return {phase: float(size) for phase, size in fit.divided(asked).phases.items()}


def peaks_of(found: Trace) -> dict[str, float]:
    return {phase: float(peak.total) for phase, peak in by_phase(found.peaks).items()}


CASES: dict[str, dict[str, Any]] = {
    "full": {},
    "full, nothing recomputed": {"activation_checkpointing": False},
    "full, tied": {"architecture": ARCHITECTURE | {"tie_word_embeddings": True}},
    "lora": {"method": "lora"},
}
ABOVE: dict[str, dict[str, Any]] = {
    "full, fp32 shards": {"compute": "amp-bf16"},
    "full, fp32 shards, later micro batch": {"compute": "amp-bf16", "gradient_accumulation": 2},
    "full, later micro batch": {"gradient_accumulation": 2},
    "lora, autocast": {"method": "lora", "compute": "amp-bf16"},
}
"""Where the trace of one device holds more: autocast copies that fully_shard makes needless, or gradients that leave at
another moment."""


def slow_but_first(names: dict[str, Any]) -> list[Any]:
    return [pytest.param(n, marks=[pytest.mark.slow] if number else []) for number, n in enumerate(names)]


@pytest.mark.parametrize("name", slow_but_first(CASES))
def test_the_closed_form_is_what_fsdp2_holds_in_every_phase(name: str):
    asked = settings(**CASES[name])
    assert closed(asked) == pytest.approx(peaks_of(trace_sharded(asked)), rel=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("name", ABOVE)
def test_the_closed_form_says_never_less_and_the_same_peak(name: str):
    asked = settings(**ABOVE[name])
    ran, said = peaks_of(trace_sharded(asked)), closed(asked)
    assert {phase: said[phase] / ran[phase] - 1 for phase in ran if said[phase] < 0.99 * ran[phase]} == {}
    assert max(said.values()) == pytest.approx(max(ran.values()), rel=0.02)


def test_an_estimate_traces_a_rank_and_says_so_or_why_not(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    asked = settings(architecture=small | {"num_hidden_layers": 1}, micro_batch=1, seq_len=64)
    found = fit.account(asked)
    assert found.method == "traced"
    assert any("fully_shard itself ran" in note for note in found.notes)
    assert sum(found.residents.values()) == found.peak_allocated_bytes + found.framework_bytes

    def broken(*_: Any) -> None:
        raise RuntimeError("this operator has no shapes")

    monkeypatch.setattr(fit, "folded_sharded", broken)
    fallen = fit.account(asked)
    assert fallen.method == "closed-form"
    assert any("this operator has no shapes" in note for note in fallen.notes)
    assert fallen.peak_allocated_bytes == pytest.approx(found.peak_allocated_bytes, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_folded_trace_of_a_rank_is_that_of_the_whole_model(method: Any):
    asked = settings(architecture=ARCHITECTURE | {"num_hidden_layers": 12}, method=method)
    whole, folded = trace_sharded(asked), folded_sharded(asked)
    assert peaks_of(folded) == pytest.approx(peaks_of(whole), rel=0.002)
    for name in ("weight_bytes", "trainable_bytes", "state_bytes", "total_parameters", "layers"):
        assert getattr(folded, name) == pytest.approx(getattr(whole, name), rel=0.001), name
