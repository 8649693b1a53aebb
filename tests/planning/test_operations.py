"""What a first sheet counts from a model's folder is what the recorded account counts, to the operation or nearly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.operations import products_of
from specs.parameters import TrainingConfiguration
from tasks.memory.moments import value
from tasks.planning.timing import TRAINING
from tests.agents.proposer_cases import write_weights


@pytest.mark.parametrize(
    ("method", "recompute", "layers", "off"),
    [
        ("full", True, 1, 0),
        ("lora", True, 1, 0.015),  # B of the last adapter is not computed again
        pytest.param("lora", False, 6, 0.015, marks=pytest.mark.slow),  # what enters the first layer needs no gradient
        pytest.param("full", False, 6, 0, marks=pytest.mark.slow),
    ],
)
def test_operations_are_those_of_the_account(
    small: dict[str, Any], tmp_path: Path, method: Any, recompute: bool, layers: int, off: float
):
    import torch
    from transformers import AutoModelForCausalLM

    from tasks.memory.model import configuration
    from tasks.memory.recording import family
    from tasks.memory.settings import from_training

    architecture = small | {"num_hidden_layers": layers}
    training = TrainingConfiguration(method=method, attention="sdpa", activation_checkpointing=recompute)
    settings = from_training(architecture, training, 256, "cpu")
    recorded = family(settings, ("adamw",), 256).work
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(configuration(settings))
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    found = products_of(write_weights(tmp_path / "m", shapes, config=architecture))
    assert found is not None
    assert not found.lacks
    assert found.attention == recorded.attention_layers * recorded.attention_width
    samples, length = 4, 256
    account = sum(value(recorded.operations.get(phase, {}), samples, length) for phase in TRAINING)
    account += (3.5 + recompute) * 2 * samples * length**2 * found.attention
    assert found.training(samples * length, samples * length**2, training) == pytest.approx(account, rel=off)
