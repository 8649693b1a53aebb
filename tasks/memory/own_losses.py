"""Output layer and loss of trainers that do not use a model's loss function, by what they allocate (`generations.Own`).

Log-probabilities of the labels are taken chunk by chunk: of the vocabulary, of tokens, or of both. Every chunk's logits
are made in the type of the weights and in fp32, and backward makes them again. Names hold the last chunk's tensors
until the next chunk's replace them, and so do they here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tasks.memory.generations import Own
from tasks.memory.losses import Release

ENOUGH = 3
"""Chunks of one size after which every other one finds memory as the last one did."""


def _chunks(total: int, size: int) -> list[int]:
    """Sizes of chunks: all that differ, and as many alike as there is something to learn from."""
    if not size or size >= total:
        return [total]
    whole, rest = divmod(total, size)
    return [size] * min(whole, ENOUGH) + ([rest] if rest else [])


class _LogProbabilities(torch.autograd.Function):
    """Log-probability and entropy of every token; hidden states, weights and three values a token are kept."""

    @staticmethod
    def forward(ctx: Any, hidden: Any, weight: Any, own: Own) -> Any:
        tokens = hidden.shape[0]
        kept = [hidden.new_empty(tokens, dtype=torch.float32) for _ in range(3)]
        logits = wide = exponential = None
        for rows in _chunks(tokens, own.tokens):
            sums = hidden.new_empty((rows, 1), dtype=torch.float32)
            for entries in _chunks(weight.shape[0], own.vocabulary):
                logits = hidden.new_empty(rows, entries)
                wide = logits.to(torch.float32)
                if own.tempered:
                    wide = wide * sums
                exponential = torch.exp(wide - sums)
                _ = exponential * wide
                del exponential, _
        del logits, wide
        ctx.own = own
        ctx.save_for_backward(hidden, weight, *kept)
        return kept[0].clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        hidden, weight, *_ = ctx.saved_tensors
        own, width = ctx.own, hidden.shape[1]
        of_hidden = torch.zeros_like(hidden)
        of_weight = torch.zeros_like(weight)  # also where weights are frozen and nobody takes it
        logits = wide = probability = gradient = narrow = part = None
        for rows in _chunks(hidden.shape[0], own.tokens):
            sums = hidden.new_empty((rows, 1), dtype=torch.float32)
            for entries in _chunks(weight.shape[0], own.vocabulary):
                logits = hidden.new_empty(rows, entries)
                wide = logits.to(torch.float32)
                if own.tempered:
                    wide = wide * sums
                probability = torch.exp(wide - sums)
                gradient = sums * probability
                if own.tempered:
                    gradient = gradient * sums
                narrow = gradient.to(hidden.dtype)
                part = hidden.new_empty(rows, width)
                del narrow, part
                narrow = gradient.to(hidden.dtype)
                part = weight.new_empty(entries, width)
                del narrow
        del logits, wide, probability, gradient, part
        return of_hidden, of_weight if ctx.needs_input_grad[1] else None, None


class OwnLoss:
    """In the place of a model's loss function; with chunks its output layer passes hidden states on (`defer`)."""

    def __init__(self, own: Own, head: Any, release: Release) -> None:
        self.own = own
        self.head = head
        self.release = release
        self.kept: torch.Tensor | None = None

    def defer(self) -> None:
        """Let the output layer pass its input on, where this takes the layer and the loss together."""
        if not self.own.keeps_logits:
            self.head.forward = lambda hidden: hidden

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """A loss over all tokens. What the trainer still holds of the micro batch before dies here."""
        flat = logits.reshape(-1, logits.shape[-1])
        if not self.own.keeps_logits:
            weight: nn.Parameter = self.head.weight
            function: Any = _LogProbabilities.apply
            loss: torch.Tensor = function(flat, weight, self.own).sum()
            return loss
        wide = flat.float()
        self.release(logits)
        self.kept = wide
        return functional.cross_entropy(wide, labels.reshape(-1), reduction="none").mean()
