"""Says where in a step a trace is: which layer is at work, forward and backward."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from tasks.memory.tracker import StorageTracker


def watch_layers(layers: list[nn.Module], tracker: StorageTracker) -> list[int]:
    """Say which layer is at work: forward by module hooks, backward by the gradient's arrival at a layer's output.

    The list returned fills with the bytes of the hidden states that enter layers in training.
    """
    depth = len(layers)
    sizes: list[int] = []

    def entering(index: int, module: nn.Module, inputs: Any) -> None:
        tracker.at(tracker.place.phase, "layer", label(index, depth))
        if module.training and inputs and isinstance(inputs[0], torch.Tensor):
            sizes.append(inputs[0].nbytes)

    def leaving(index: int, module: nn.Module, inputs: Any, output: Any) -> None:
        tracker.at(tracker.place.phase, "after")
        hidden = output[0] if isinstance(output, tuple) else output
        if isinstance(hidden, torch.Tensor) and hidden.requires_grad:
            arriving: Any = hidden.register_hook
            arriving(lambda grad: tracker.at("backward", "layer", label(index, depth)))

    for index, layer in enumerate(layers):
        layer.register_forward_pre_hook(partial(entering, index))
        layer.register_forward_hook(partial(leaving, index), always_call=True)
    return sizes


def label(index: int, depth: int) -> int:
    """Layers of the front half count from 0 on, those of the back half down from -1."""
    return index if index < depth // 2 else index - depth
