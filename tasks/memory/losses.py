"""The loss of every software generation, by what it allocates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tasks.memory.generations import NEVER_UPCAST, UPCAST_IN_MODEL, Generation

Release = Callable[[torch.Tensor], None]
"""Tells the account that a tensor's memory is free although this process still holds the object."""


class _FusedCrossEntropy(torch.autograd.Function):
    """One sum a row beside the logits; backward writes their gradient over them."""

    @staticmethod
    def forward(ctx: Any, logits: Any) -> Any:
        rows = logits.new_empty(logits.shape[0], dtype=torch.float32)
        ctx.save_for_backward(logits, rows)
        return torch.empty_like(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.saved_tensors[0]


class _Kept(torch.autograd.Function):
    """Passes a loss on and keeps a tensor until the gradient comes back."""

    @staticmethod
    def forward(ctx: Any, loss: Any, tensor: Any) -> Any:
        ctx.save_for_backward(tensor)
        ctx.holder = tensor
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


class _ChunkedLinearCrossEntropy(torch.autograd.Function):
    """Output layer and loss by chunks of tokens, gradients made in the forward pass (Liger's fused linear loss).

    A chunk is as many tokens as make its fp32 logits about as large as all hidden states, a power of two.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Any, weight: Any) -> Any:
        tokens, width = hidden.shape
        vocabulary = weight.shape[0]
        wanted = -(-tokens // -(-vocabulary // width))
        chunk = min(tokens, 1 << max(0, wanted - 1).bit_length())
        kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else hidden.dtype
        of_weight = torch.zeros_like(weight) if weight.requires_grad else None
        of_hidden = torch.zeros_like(hidden)
        losses = hidden.new_empty(tokens, dtype=torch.float32)
        logits = hidden.new_empty((chunk, vocabulary), dtype=kind)
        logits = logits.to(torch.float32)
        logits = logits.to(kind)
        scaled = torch.empty_like(logits)
        of_chunk = scaled.new_empty(chunk, width)
        if of_weight is not None and kind != weight.dtype:
            weight.new_empty(weight.shape, dtype=kind)
        del logits, scaled, of_chunk
        ctx.save_for_backward(of_hidden, *([] if of_weight is None else [of_weight]))
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        of_hidden, *of_weight = ctx.saved_tensors
        return of_hidden, of_weight[0] if of_weight else None


def of_generation(
    generation: Generation, kind: str, original: Any, head: nn.Module | None, release: Release
) -> Callable[..., torch.Tensor]:
    """The loss function that a model of type `kind` calls with its logits and labels."""

    def shifted(logits: torch.Tensor, labels: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        own_type = kind in NEVER_UPCAST
        whole = logits if own_type and not torch.is_autocast_enabled("cpu") else logits.float()
        if whole is not logits and (own_type or kind in UPCAST_IN_MODEL or not generation.keeps_16bit_logits):
            release(logits)
        moved = whole[..., :-1, :].contiguous().view(-1, whole.shape[-1])
        targets = labels[..., 1:].contiguous().view(-1)
        fused: Any = _FusedCrossEntropy.apply
        loss: torch.Tensor
        loss = fused(moved).sum() if generation.loss == "fused" else functional.cross_entropy(moved, targets)
        kept: Any = _Kept.apply
        return kept(loss, whole) if own_type else loss  # type: ignore[no-any-return]

    def chunked(logits: torch.Tensor, labels: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        # the deferred output layer has passed its input on: these are hidden states
        moved = logits[..., :-1, :].contiguous().view(-1, logits.shape[-1])
        weight: Any = getattr(head, "weight", None)
        together: Any = _ChunkedLinearCrossEntropy.apply
        loss: torch.Tensor = together(moved, weight)
        return loss

    if generation.loss == "current":
        found: Callable[..., torch.Tensor] = original
        return found
    return chunked if generation.loss == "chunked" else shifted
