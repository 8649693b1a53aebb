"""Adapters on quantised layers as one fused operator (fms-acceleration, after unsloth): what it keeps and takes.

The operator of the query, key and value projections keeps its input and its three dropped-out copies; backward writes
the gradient of the input over the input. The output projection has one of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

TOGETHER = ("q_proj", "k_proj", "v_proj")
ALONE = ("o_proj",)


class _FusedAdapters(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Any, layers: Any, over_input: bool, *factors: Any) -> Any:
        rows = values.view(-1, values.shape[-1])
        results, dropped = [], []
        for layer, down, up in zip(layers, factors[::2], factors[1::2], strict=True):
            weight = values.new_empty(layer.base_layer.out_features, layer.base_layer.in_features)
            result = rows @ weight.t()
            del weight
            kept = torch.native_dropout(rows, 0.5, True)[0]
            result += (kept @ down.t().to(rows.dtype)) @ up.t().to(rows.dtype)
            results.append(result.view(*values.shape[:-1], -1))
            dropped.append(kept)
        ctx.layers, ctx.over_input = layers, over_input
        ctx.save_for_backward(values, *factors, *dropped)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        values, *rest = ctx.saved_tensors
        count = len(ctx.layers)
        factors, dropped = rest[: 2 * count], rest[2 * count :]
        rows, made, total = values.view(-1, values.shape[-1]), [], None
        flat = [g.reshape(-1, g.shape[-1]) for g in gradients]
        for down, up, kept, of_out in zip(factors[::2], factors[1::2], dropped, flat, strict=True):
            kind = kept.dtype
            made.append((kept.t() @ (of_out @ up.to(kind))).t().to(down.dtype))
            made.append((of_out.t() @ (kept @ down.t().to(kind))).to(up.dtype))
        for layer, down, up, kept, of_out in zip(ctx.layers, factors[::2], factors[1::2], dropped, flat, strict=True):
            weight = values.new_empty(layer.base_layer.out_features, layer.base_layer.in_features)
            part = torch.matmul(of_out, weight, out=rows) if total is None and ctx.over_input else of_out @ weight
            del weight
            total = part if total is None else total.add_(part)
            del part
            total += (kept != 0) * (of_out @ up.to(kept.dtype) @ down.to(kept.dtype))
        return (total.view(values.shape) if total is not None else None, None, None, *made)


def fuse_adapters(model: nn.Module) -> None:
    """Run the adapters of every attention through the fused operators, where all of its projections have one."""
    for module in model.modules():
        for names in (TOGETHER, ALONE):
            layers = [getattr(module, name, None) for name in names]
            if all(hasattr(layer, "lora_A") for layer in layers):
                for layer, forward in zip(layers, _forwards(layers, over_input=names is TOGETHER), strict=True):
                    layer.forward = forward  # type: ignore[union-attr, method-assign, assignment]


def _forwards(layers: list[Any], over_input: bool) -> list[Callable[..., torch.Tensor]]:
    """The first projection that is called computes all, the others take their result."""
    waiting: dict[int, torch.Tensor] = {}

    def forward(number: int, values: torch.Tensor) -> torch.Tensor:
        if not waiting:
            factors = [w for layer in layers for w in (layer.lora_A.default.weight, layer.lora_B.default.weight)]
            operator: Any = _FusedAdapters.apply
            waiting.update(enumerate(operator(values, layers, over_input, *factors)))
        return waiting.pop(number)

    def bound(number: int) -> Callable[..., torch.Tensor]:
        return lambda values, *args, **kwargs: forward(number, values)

    return [bound(number) for number in range(len(layers))]
