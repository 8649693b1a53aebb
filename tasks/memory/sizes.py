"""Sizes of models in bytes and values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


def bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of tensors, each counted once."""
    return sum({id(t): t.numel() * t.element_size() for t in tensors}.values())


def parameters_of(model: nn.Module) -> int:
    """Values of the model, packed 4-bit ones counted as what they stand for."""
    return sum(int(getattr(p, "unpacked_values", p.numel())) for p in model.parameters())
