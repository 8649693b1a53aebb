"""Ranks that divide layers as transformers, PEFT and torch run them without data, against the closed form."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specs.errors import InputError, ModelError
from tasks.memory import grid_account
from tasks.memory.account import Account
from tasks.memory.asked import settings_of
from tasks.memory.grid import StageOf, of_one_device, stages_of
from tasks.memory.grid_sums import rank_trace
from tasks.memory.grid_trace import folded_rank, trace_rank
from tasks.memory.model import configuration
from tasks.memory.narrowing import narrower
from tasks.memory.settings import TraceSettings
from tasks.memory.trace import trace
from tasks.memory.traced import by_phase

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 8000,
}
QWEN3 = LLAMA | {"model_type": "qwen3", "num_key_value_heads": 4, "head_dim": 64}
TIED = LLAMA | {"model_type": "qwen2", "tie_word_embeddings": True}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_key_value_heads": 4, "num_local_experts": 4}
DEEP = LLAMA | {"num_hidden_layers": 8}

CLOSE: dict[str, dict[str, Any]] = {
    "two tensor ranks": {"tensor_parallel": 2},
    "two stages": {"pipeline_stages": 2, "gradient_accumulation": 5},
    "both": {"tensor_parallel": 2, "pipeline_stages": 2, "gradient_accumulation": 5},
    "both, lora": {"tensor_parallel": 2, "pipeline_stages": 2, "gradient_accumulation": 5, "method": "lora"},
    "four tensor ranks, qwen3, lora": {"tensor_parallel": 4, "architecture": QWEN3, "method": "lora"},
    "a mixture of experts": {"tensor_parallel": 2, "architecture": MIXTRAL},
    "nothing recomputed": {"tensor_parallel": 2, "activation_checkpointing": False},
    "nothing recomputed, lora": {"tensor_parallel": 2, "activation_checkpointing": False, "method": "lora"},
    "later micro batches": {"tensor_parallel": 2, "gradient_accumulation": 2},
    "tied": {"tensor_parallel": 2, "architecture": TIED},
    "tied, later micro batches": {"tensor_parallel": 2, "architecture": TIED, "gradient_accumulation": 2},
    "tied, two stages": {"pipeline_stages": 2, "architecture": TIED, "gradient_accumulation": 5},
    "fp32 weights, autocast": {"tensor_parallel": 2, "weights": "fp32", "compute": "amp-bf16"},
    "fp32": {"tensor_parallel": 2, "weights": "fp32", "compute": "fp32"},
    "adamw by loops over lists": {"tensor_parallel": 2, "optimizer": "adamw"},
    "8-bit states": {"tensor_parallel": 2, "optimizer": "adamw_8bit"},
    "replicas": {"tensor_parallel": 2, "gpus": 4, "sharding": "ddp"},
    "four stages": {"pipeline_stages": 4, "architecture": DEEP, "gradient_accumulation": 16},
    "four stages, lora": {"pipeline_stages": 4, "architecture": DEEP, "gradient_accumulation": 16, "method": "lora"},
    "two stages, nothing recomputed": {
        "pipeline_stages": 2,
        "activation_checkpointing": False,
        "gradient_accumulation": 5,
    },
    "two stages, autocast": {
        "pipeline_stages": 2,
        "weights": "fp32",
        "compute": "amp-bf16",
        "gradient_accumulation": 5,
    },
}
NEAR: dict[str, dict[str, Any]] = {
    "as many micro batches as stages": {"pipeline_stages": 2, "gradient_accumulation": 2},
    "two stages, lora, nothing recomputed": {
        "pipeline_stages": 2,
        "activation_checkpointing": False,
        "gradient_accumulation": 5,
        "method": "lora",
    },
}
"""Where the closed form takes two moments together, or a first layer whose input needs no gradient for all layers."""


def settings(**changed: Any) -> TraceSettings:
    values: dict[str, Any] = {
        "architecture": LLAMA,
        "method": "full",
        "weights": "bf16",
        "compute": "bf16",
        "activation_checkpointing": True,
        "micro_batch": 2,
        "seq_len": 256,
        "optimizer": "adamw_fused",
    }
    ranks = changed.get("tensor_parallel", 1) * changed.get("pipeline_stages", 1)
    return TraceSettings(**{**values, "gpus": ranks, **changed})


def both(name: str, cases: dict[str, dict[str, Any]]) -> tuple[Account, Account]:
    """Traced, and in closed form."""
    asked = settings(**cases[name])
    ran, said = grid_account.account(asked), grid_account.closed(asked)
    assert (ran.method, said.method) == ("traced", "closed-form"), ran.notes
    return ran, said


def peaks_of(account: Account) -> dict[int, float]:
    return {s.stage: float(s.peak_allocated_bytes) for s in account.stages}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (i > 1)) for i, n in enumerate(CLOSE)])
def test_the_closed_form_is_what_a_rank_holds_in_every_phase(name: str):
    ran, said = both(name, CLOSE)
    assert said.phases == pytest.approx(ran.phases, rel=0.015)
    assert said.peak_allocated_bytes == pytest.approx(ran.peak_allocated_bytes, rel=0.005)
    assert peaks_of(said) == pytest.approx(peaks_of(ran), rel=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("name", NEAR)
def test_the_closed_form_has_nearly_the_peak_where_moments_differ(name: str):
    ran, said = both(name, NEAR)
    assert peaks_of(said) == pytest.approx(peaks_of(ran), rel=0.05)


@pytest.mark.slow
def test_two_processes_that_share_layers_take_what_the_trace_says(tmp_path: Path):
    transformers: Any = __import__("transformers")
    asked = settings(
        tensor_parallel=2,
        weights="fp32",
        compute="fp32",
        device="cpu",
        optimizer="adamw",
        activation_checkpointing=False,
    )
    model = transformers.AutoModelForCausalLM.from_config(configuration(asked))
    model.save_pretrained(tmp_path / "model")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    program, folder = Path(__file__).with_name("rank_process.py"), str(tmp_path / "model")
    results = [tmp_path / f"{rank}.json" for rank in range(2)]
    ranks = [
        subprocess.Popen([sys.executable, str(program), str(rank), port, folder, str(result)])
        for rank, result in enumerate(results)
    ]
    try:
        assert [process.wait(timeout=300) for process in ranks] == [0, 0]
    finally:
        for process in ranks:
            process.kill()
    measured = json.loads(results[0].read_text(encoding="utf-8"))
    (stage,) = stages_of(asked)
    traced = {phase: peak.total for phase, peak in by_phase(trace_rank(asked, stage).peaks).items()}
    passes = max(traced[phase] for phase in ("forward", "loss", "backward"))
    # gloo's own threads let go of what was summed a little later: two hidden states, now and then
    assert passes == pytest.approx(measured["passes 1"], rel=0.02)
    assert traced["optimizer"] == pytest.approx(measured["optimizer 1"], rel=0.005)


@pytest.mark.slow
def test_a_rank_of_many_layers_is_folded_from_few():
    asked = settings(architecture=LLAMA | {"num_hidden_layers": 10, "vocab_size": 1000}, tensor_parallel=2, seq_len=64)
    (stage,) = stages_of(asked)
    whole, folded = (by_phase(t.peaks) for t in (trace_rank(asked, stage), folded_rank(asked, stage)))
    assert {p: v.total for p, v in folded.items()} == pytest.approx({p: v.total for p, v in whole.items()}, rel=0.002)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"method": "dora", "tensor_parallel": 2}, "DoRA cannot be divided"),
        ({"method": "qlora", "weights": "nf4", "tensor_parallel": 2}, "4-bit weights"),
        ({"loss_path": "fused", "tensor_parallel": 2}, "another time"),
        ({"packed": True, "pipeline_stages": 2}, "packed rows"),
        ({"method": "dora", "pipeline_stages": 2}, ""),
    ],
)
def test_what_cannot_be_traced_has_its_reason(changed: dict[str, Any], words: str):
    assert words in grid_account.not_traced(settings(**changed))
    assert bool(words) == bool(grid_account.not_traced(settings(**changed)))


def test_where_the_trace_fails_the_closed_form_answers_and_says_why(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any) -> None:
        raise RuntimeError("this operator has no shapes")

    monkeypatch.setattr(grid_account, "_traced", broken)
    found = grid_account.account(settings(tensor_parallel=2, seq_len=64))
    assert found.method == "closed-form"
    assert any("this operator has no shapes" in note for note in found.notes)
    assert sum(found.residents.values()) == found.peak_allocated_bytes + found.framework_bytes


ESTIMATED: dict[str, dict[str, Any]] = {
    "full": {},
    "full, fp32 weights": {"weights": "fp32", "compute": "amp-bf16"},
    "lora": {"method": "lora", "compute": "amp-bf16"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATED)
@pytest.mark.parametrize("ranks", [2, 4])
def test_what_a_plan_estimates_from_one_device_is_near_the_trace_of_a_rank(name: str, ranks: int):
    asked = settings(tensor_parallel=ranks, architecture=LLAMA | {"num_hidden_layers": 4}, **ESTIMATED[name])
    whole = trace(asked.model_copy(update={"tensor_parallel": 1, "gpus": 1}))
    (stage,) = stages_of(asked)
    said = by_phase(rank_trace(narrower(whole, asked, 512), 512, asked, stage).peaks)
    ran = by_phase(trace_rank(asked, stage).peaks)
    assert max(p.total for p in said.values()) == pytest.approx(max(p.total for p in ran.values()), rel=0.03)
    assert {phase for phase, peak in ran.items() if said[phase].total < 0.9 * peak.total} == set()


def test_adapters_by_rows_say_that_the_installed_peft_cannot_run_them():
    asked = settings(tensor_parallel=2, method="lora")
    assert grid_account.widths(asked)
    assert grid_account.widths(asked.model_copy(update={"targets": ["o_proj"]}))
    assert not grid_account.widths(asked.model_copy(update={"targets": ["q_proj", "up_proj"]}))
    assert not grid_account.widths(asked.model_copy(update={"method": "full"}))


@pytest.mark.parametrize("ranks", [{"tensor_parallel": 2}, {"pipeline_stages": 2, "gradient_accumulation": 5}])
def test_a_model_that_transformers_does_not_divide_is_refused_by_name(ranks: dict[str, Any]):
    with pytest.raises(ModelError, match="gpt2") as raised:
        grid_account.account(settings(architecture=LLAMA | {"model_type": "gpt2"}, **ranks))
    assert "--sharding" in raised.value.hint


def test_micro_batches_in_flight_are_as_many_as_stages_that_follow():
    asked = settings(architecture=DEEP, pipeline_stages=4, gradient_accumulation=16)
    assert [(s.index, s.layers, s.in_flight) for s in stages_of(asked)] == [(0, 2, 4), (1, 2, 3), (3, 2, 1)]
    assert StageOf(0, 4, 2, 3).in_flight == 3


def test_a_rank_has_its_share_of_heads_and_inner_width_under_whole_hidden_states():
    narrow = of_one_device(settings(architecture=QWEN3, tensor_parallel=4)).architecture
    assert (narrow["num_attention_heads"], narrow["num_key_value_heads"], narrow["intermediate_size"]) == (2, 1, 352)
    assert (narrow["hidden_size"], narrow["head_dim"], narrow["vocab_size"]) == (512, 64, 8000)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tensor_parallel": 3}, "attention heads.*vocabulary"),
        ({"tensor_parallel": 8}, "key heads"),
        ({"pipeline_stages": 3}, "2 layers"),
        ({"pipeline_stages": 2, "gradient_accumulation": 1}, "at least as many micro batches"),
        ({"tensor_parallel": 2, "gpus": 3}, "no multiple"),
        ({"tensor_parallel": 2, "gpus": 4}, "2 replicas"),
        ({"tensor_parallel": 2, "gpus": 2, "sharding": "ddp"}, "one replica"),
        ({"tensor_parallel": 2, "gpus": 4, "sharding": "fsdp"}, "only replicas"),
        ({"tensor_parallel": 2, "gpus": 2, "nodes": 2}, "one machine"),
        ({"tensor_parallel": 2, "method": "inference"}, "one GPU"),
    ],
)
def test_what_does_not_divide_is_named_with_a_way_out(options: dict[str, Any], words: str):
    with pytest.raises(InputError, match=words) as raised:
        settings_of(QWEN3, options)
    assert raised.value.hint


def test_a_configuration_that_does_not_say_its_sizes_cannot_be_divided():
    with pytest.raises(InputError, match="num_attention_heads"):
        settings_of({"model_type": "llama"}, {"tensor_parallel": 2})


def test_ranks_and_micro_batches_that_are_left_out_follow():
    found = settings_of(QWEN3, {"tensor_parallel": 2, "pipeline_stages": 2})
    assert (found.gpus, found.gradient_accumulation) == (4, 5)
