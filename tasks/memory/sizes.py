"""Sizes of models in bytes and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


def bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of tensors, each counted once."""
    return sum({id(t): t.numel() * t.element_size() for t in tensors}.values())


def parameters_of(model: nn.Module) -> int:
    """Values of the model, packed 4-bit ones counted as what they stand for."""
    return sum(int(getattr(p, "unpacked_values", p.numel())) for p in model.parameters())


def embedding_bytes(model: Any) -> int:
    """The input embedding, 0 where the output layer shares it or nobody says which it is."""
    found = [getattr(model, name, lambda: None)() for name in ("get_input_embeddings", "get_output_embeddings")]
    weights = [getattr(module, "weight", None) for module in found]
    if not isinstance(weights[0], torch.Tensor) or weights[0] is weights[1]:
        return 0
    return bytes_of([weights[0]])
