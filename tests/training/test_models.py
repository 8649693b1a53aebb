"""Base models load whole or not at all, and what cannot be trained here is said before anything is loaded."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch

from specs.errors import ModelError
from specs.parameters import LoraParameters
from tasks.training.models import (
    build_trainable,
    check_possible,
    export,
    gradient_nodes,
    load_base,
    load_trained,
    load_weights,
)
from tests.support.samples import small_training


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attention": "flash"}, "attention flash needs a CUDA GPU"),
        ({"compute": "amp-fp16"}, "scales its loss on a GPU only"),
        ({"weights": "bf16", "compute": "fp32"}, "weights bf16 cannot compute in fp32"),
        ({"method": "full", "weights": "fp16", "compute": "amp-fp16"}, "method full cannot train fp16 weights"),
        ({"method": "lora", "weights": "nf4"}, "method lora does not go with weights nf4"),
    ],
)
def test_what_this_machine_cannot_train_is_refused_with_the_reason(changes, words):
    with pytest.raises(ModelError) as caught:
        check_possible(small_training(**changes), "cpu")
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed")
@pytest.mark.parametrize("changes", [{"method": "qlora", "weights": "nf4-dq"}, {"optimizer": "adamw_8bit"}])
def test_a_missing_package_is_named_with_how_to_install_it(changes):
    with pytest.raises(ModelError) as caught:
        check_possible(small_training(**changes), "cpu")
    assert "needs bitsandbytes" in caught.value.message
    assert "pip install" in caught.value.hint


def test_a_folder_without_weights_is_said(tmp_path):
    with pytest.raises(ModelError, match="holds no model weights"):
        load_base(tmp_path)


def test_weights_that_lack_a_tensor_are_refused_not_drawn_at_random(tiny_model, tmp_path):
    import safetensors.torch

    folder = tmp_path / "cut"
    shutil.copytree(tiny_model, folder)
    file = next(folder.glob("*.safetensors"))
    tensors = safetensors.torch.load_file(file)
    gone = sorted(name for name in tensors if "mlp" in name)[0]
    del tensors[gone]
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lacks 1 tensors"):
        load_base(folder)


def test_targets_that_name_no_layer_are_said_with_those_that_exist(tiny_model):
    lora = small_training().lora.model_copy(update={"targets": ["query"]})
    with pytest.raises(ModelError) as caught:
        build_trainable(tiny_model, small_training(lora=lora), "cpu")
    assert "query" in caught.value.message
    assert "q_proj" in caught.value.hint


def test_an_exported_adapter_has_no_path_and_loads_to_the_same_numbers(tiny_model, tmp_path):
    model = build_trainable(tiny_model, small_training(), "cpu")
    for name, parameter in sorted(model.named_parameters()):
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(len(name)))
    export(model, tiny_model, "org/base", tmp_path)
    config = (tmp_path / "adapter" / "adapter_config.json").read_text()
    assert json.loads(config)["base_model_name_or_path"] == "org/base"
    assert str(tiny_model) not in config
    ids = torch.tensor([[5, 6, 7, 8]])
    trained = load_trained(tiny_model, tmp_path)
    with torch.no_grad():
        assert torch.equal(model.eval()(ids).logits, trained(ids).logits)
        assert not torch.equal(load_trained(tiny_model, None)(ids).logits, trained(ids).logits)


def test_weights_of_another_rank_are_refused(tiny_model, tmp_path):
    export(build_trainable(tiny_model, small_training(), "cpu"), tiny_model, "", tmp_path)
    dora = build_trainable(tiny_model, small_training(method="dora"), "cpu")
    with pytest.raises(ModelError, match="does not fit this configuration"):
        load_weights(dora, tmp_path / "adapter")


def test_nothing_trained_is_said(tiny_model, tmp_path: Path):
    with pytest.raises(ModelError, match="neither adapter/ nor model/"):
        load_trained(tiny_model, tmp_path)


def test_nodes_that_add_to_gradients_are_made_once_where_they_are_held():
    """Made anew in each forward pass, they would stand in the heap among its activations."""
    layer = torch.nn.Linear(3, 2)
    layer.bias.requires_grad_(False)
    held = gradient_nodes(layer)
    assert len(held) == 1
    for _ in range(2):
        loss = layer(torch.ones(1, 3)).sum()
        assert loss.grad_fn.next_functions[0][0].next_functions[-1][0].next_functions[0][0] is held[0]
        loss.backward()
        del loss
    assert gradient_nodes(layer)[0] is held[0]


@pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="needs bitsandbytes")
def test_measuring_a_loss_changes_nothing_of_a_4_bit_model(tiny_model):
    """On some processors bitsandbytes packs the weights at the first pass without gradients: rounded, and passing no
    gradients on from then."""
    lora = LoraParameters(rank=4, alpha=8, dropout=0)
    model = build_trainable(tiny_model, small_training(method="qlora", weights="nf4-dq", lora=lora), "cpu")
    ids = torch.arange(8, 40).reshape(2, 16)

    def gradients() -> list[torch.Tensor]:
        model.train().zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    before = gradients()
    with torch.no_grad():
        measured = model.eval()(input_ids=ids, labels=ids).loss
    after = gradients()
    assert len(before) == len(after) > 0
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert torch.equal(measured, model(input_ids=ids, labels=ids).loss)
