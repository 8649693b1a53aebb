"""What one trace brings, and sizes of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from tasks.memory.timeline import Peak, Place


@dataclass
class Trace:
    """Peaks by place, and what the account needs beside them. Bytes, except the two counts."""

    peaks: dict[Place, Peak]
    trainable_parameters: int
    total_parameters: int
    weight_bytes: int
    trainable_bytes: int
    state_bytes: int
    paged_bytes: int
    buffer_bytes: int = 0
    layers: int = 0
    layer_weight_bytes: int = 0
    layer_parameters: int = 0
    layer_input_bytes: int = 0


def bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of tensors, each counted once."""
    return sum({id(t): t.numel() * t.element_size() for t in tensors}.values())


def parameters_of(model: nn.Module) -> int:
    """Values of the model, packed 4-bit ones counted as what they stand for."""
    return sum(int(getattr(p, "unpacked_values", p.numel())) for p in model.parameters())
