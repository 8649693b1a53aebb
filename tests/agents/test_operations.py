"""Operations are counted from what a model folder says, and where it does not say enough the sheet tells why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.operations import Matrix, Products, products_of
from agents.task_sheet import sheet_of
from specs.parameters import TrainingConfiguration
from tests.agents.proposer_cases import context, project, write_weights

CONFIG = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8}
LAYERS = {
    f"model.layers.{n}.{name}.weight": shape
    for n in (0, 1)
    for name, shape in {
        "self_attn.q_proj": (8, 8),
        "mlp.up_proj": (32, 8),
        "mlp.down_proj": (8, 32),
        "norm": (8,),
    }.items()
}
EMBEDDINGS = {"model.embed_tokens.weight": (100, 8)}
INSIDE, HEAD = 2 * (64 + 256 + 256), 800
FULL = TrainingConfiguration(method="full")
ADAPTERS = TrainingConfiguration(method="lora")


def products(
    folder: Path, shapes: dict[str, tuple[int, ...]], config: dict[str, Any] | None = None, **more: Any
) -> Products:
    found = products_of(write_weights(folder, shapes, config=CONFIG if config is None else config, **more))
    assert found is not None
    return found


def test_trained_weights_take_six_operations_and_frozen_ones_four(tmp_path: Path):
    model = products(tmp_path / "m", LAYERS | EMBEDDINGS)
    assert model.forward(1, 0) == 2 * (INSIDE + HEAD)
    assert model.training(1, 0, FULL) == 6 * (INSIDE + HEAD)
    rank = ADAPTERS.lora.rank
    own = rank * 2 * (16 + 40 + 40)
    assert model.training(1, 0, ADAPTERS) == 4 * (INSIDE + HEAD) + 6 * own
    some = ADAPTERS.model_copy(update={"lora": ADAPTERS.lora.model_copy(update={"targets": ["q_proj"]})})
    assert model.training(1, 0, some) == 4 * (INSIDE + HEAD) + 6 * rank * 2 * 16
    again = FULL.model_copy(update={"activation_checkpointing": True})
    assert model.training(1, 0, again) == 6 * (INSIDE + HEAD) + 2 * (INSIDE - 2 * 256)


def test_an_output_layer_of_its_own_counts_and_embeddings_that_are_looked_up_do_not(tmp_path: Path):
    shared = products(tmp_path / "shared", LAYERS | EMBEDDINGS)
    apart = products(tmp_path / "apart", LAYERS | EMBEDDINGS | {"lm_head.weight": (100, 8)})
    assert shared.forward(1, 0) == apart.forward(1, 0)


def test_of_experts_a_token_reaches_some(tmp_path: Path):
    many = {"num_experts": 4, "num_experts_per_tok": 1, **CONFIG}
    apart = {f"model.layers.0.mlp.experts.{n}.up_proj.weight": (32, 8) for n in range(4)}
    fused = {"model.layers.0.mlp.experts.gate_up_proj": (4, 8, 32)}
    assert products(tmp_path / "apart", apart | EMBEDDINGS, many).forward(1, 0) == 2 * (256 + HEAD)
    assert products(tmp_path / "fused", fused | EMBEDDINGS, many).forward(1, 0) == 2 * (256 + HEAD)


@given(
    tokens=st.floats(1, 1e9),
    length=st.floats(1, 1e5),
    inside=st.integers(1, 10**6),
    recompute=st.booleans(),
    attention=st.sampled_from(["sdpa", "eager"]),
)
def test_training_takes_more_than_a_forward_pass_and_full_training_more_than_frozen_weights(
    tokens, length, inside, recompute, attention
):
    more = {"activation_checkpointing": recompute, "attention": attention}
    layers = (Matrix("up_proj", inside, 8, 1.0), Matrix("down_proj", 8, inside, 1.0))
    model = Products(16 * inside, layers, head=800.0, hidden=8, attention=16.0)
    none = ADAPTERS.model_copy(update={**more, "lora": ADAPTERS.lora.model_copy(update={"targets": ["other"]})})
    full = FULL.model_copy(update=more)
    counted = [
        model.forward(tokens, tokens * length),
        model.training(tokens, tokens * length, none),
        model.training(tokens, tokens * length, full),
    ]
    assert counted == sorted(counted)
    assert counted[1] >= 2 * counted[0]


@pytest.mark.parametrize(
    ("lacks", "config", "shapes", "more", "said"),
    [
        ("no_config", {"hidden_size": 8}, LAYERS, {}, "does not say its layers and heads"),
        ("no_config", {"num_attention_heads": 0, **CONFIG, "head_dim": "x"}, LAYERS, {}, "layers and heads"),
        ("no_matrices", CONFIG, {"w": (135_000_000,)}, {}, "named by a layer"),
        ("packed", CONFIG, LAYERS, {"dtype": "U8"}, "stored packed"),
    ],
)
def test_a_folder_that_does_not_tell_counts_six_for_each_parameter_and_the_sheet_says_why(
    tmp_path: Path,
    lacks: str,
    config: dict[str, Any],
    shapes: dict[str, tuple[int, ...]],
    more: dict[str, Any],
    said: str,
):
    model = products(tmp_path / "m", shapes, config, **more)
    assert model.lacks == lacks
    assert model.training(10, 100, ADAPTERS) == 60 * model.parameters
    survey = {"rows": 460, "distinct": 440, "complete": True, "mean_tokens": 120.5, "longest_tokens": 250}
    for language, word in (("en", said), ("zh", "6 次计")):
        sheet = sheet_of(context("data", project(language=language), base_model=tmp_path / "m", survey=survey))
        (hours,) = (e for s in sheet.stages for e in s.expected if e.metric == "training_hours")
        assert word in hours.why
