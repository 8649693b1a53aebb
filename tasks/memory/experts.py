"""Mixture-of-experts layers: today's stacked weights, and lists as software before transformers 5 had them.

In lists quantisation packs experts like every linear layer; stacked expert weights stay in 16 bits.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn


class GroupedProduct(torch.autograd.Function):
    """One product for all experts. On fake tensors PyTorch has it for bfloat16 only; others allocate the same.

    One expert's weight stands for all: the sizes of results and the number of operations are the same.
    """

    @staticmethod
    def forward(ctx: Any, values: Any, weight: Any) -> Any:
        ctx.save_for_backward(values, weight)
        return values @ weight[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        _, weight = ctx.saved_tensors
        return gradients[0] @ weight[0].t(), torch.empty_like(weight) if ctx.needs_input_grad[1] else None


def _grouped(values: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    product: Any = GroupedProduct.apply
    result: torch.Tensor = product(values.to(weight.dtype), weight)
    return result


def grouped_products() -> AbstractContextManager[Any]:
    """Take the products of stacked experts in every type."""
    from transformers.integrations import moe

    return patch.object(moe, "_grouped_mm", _grouped)


class _Expert(nn.Module):
    def __init__(self, width: int, inner: int, activation: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False, dtype=dtype)
        self.up = nn.Linear(width, inner, bias=False, dtype=dtype)
        self.down = nn.Linear(inner, width, bias=False, dtype=dtype)
        self.activation = activation

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down(self.activation(self.gate(values)) * self.up(values))
        return result


class ExpertList(nn.Module):
    """Every expert takes an equal share of the tokens: how a trained router spreads them is not known beforehand."""

    def __init__(self, stacked: Any) -> None:
        super().__init__()
        experts, double, width = stacked.gate_up_proj.shape
        kind = stacked.gate_up_proj.dtype
        self.experts = nn.ModuleList(_Expert(width, double // 2, stacked.act_fn, kind) for _ in range(experts))

    def forward(self, hidden: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        """One expert after the other, as the loop of 2024 did."""
        rows = -(-hidden.shape[0] * chosen.shape[-1] // len(self.experts))
        total = torch.zeros_like(hidden)
        for expert in self.experts:
            which = chosen.new_zeros(rows)
            weighted = expert(hidden[which]) * shares[which, which, None]
            total.index_add_(0, which, weighted.to(total.dtype))
        return total


def unstack(model: nn.Module) -> None:
    """Exchange stacked experts (`gate_up_proj`, `down_proj`) for lists, in place."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            stacked: Any = child
            if getattr(getattr(child, "gate_up_proj", None), "ndim", 0) == 3 and hasattr(child, "act_fn"):
                with torch.device("meta"):
                    setattr(parent, name, ExpertList(stacked))
