"""What a first sheet counts from a model's folder is what the recorded account counts, to the operation or nearly."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from agents.operations import products_of
from specs.parameters import TrainingConfiguration
from tasks.memory.moments import value
from tasks.planning.timing import TRAINING

TOKENS = TrainingConfiguration(method="lora", attention="sdpa")


def write_folder(folder: Path, config: dict[str, Any], shapes: dict[str, tuple[int, ...]], dtype: str = "F32") -> Path:
    """A model folder with a configuration and the header of its weights, without the weights."""
    folder.mkdir(parents=True)
    header = {n: {"dtype": dtype, "shape": list(shape), "data_offsets": [0, 0]} for n, shape in shapes.items()}
    data = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(data)) + data)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("method", "recompute"), [("lora", False), ("lora", True), ("full", False), ("full", True)], ids=str
)
def test_operations_are_those_of_the_account(small, tmp_path: Path, method: Any, recompute: bool):
    import torch
    from transformers import AutoModelForCausalLM

    from tasks.memory.model import configuration
    from tasks.memory.recording import family
    from tasks.memory.settings import from_training

    training = TOKENS.model_copy(update={"method": method, "activation_checkpointing": recompute})
    architecture = small | {"num_hidden_layers": 6}
    settings = from_training(architecture, training, 256, "cpu")
    recorded = family(settings, ("adamw",), 256).work
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(configuration(settings))
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    found = products_of(write_folder(tmp_path / "m", architecture, shapes))
    assert found is not None
    assert not found.lacks
    assert found.attention == recorded.attention_layers * recorded.attention_width
    samples, length = 4, 256
    account = sum(value(recorded.operations.get(phase, {}), samples, length) for phase in TRAINING)
    account += (3.5 + recompute) * 2 * samples * length**2 * found.attention
    counted = found.training(samples * length, samples * length**2, training)
    print(method, recompute, counted, account, counted / account)
    assert counted == pytest.approx(account, rel=0.02)
