"""GPU kernels by what they allocate: attention without a matrix of scores, and the fused kernels of 2024's trainers.

A trace runs on fake CPU tensors, where these kernels do not exist or allocate something else. Each stand-in keeps
what its kernel keeps for the backward pass and takes the working memory that its kernel takes. No value is computed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn import functional

from tasks.memory.generations import REPEATED_KEYS, Generation

FLASH = "attention_on_blocks"
"""The name under which flash attention is registered for traces."""
ROWS, WIDTH = 128, 32
"""Flash attention works on blocks: rows and head size of its fp32 accumulator are rounded up to these."""


def _up(size: int, block: int) -> int:
    return -(-size // block) * block


class _Attention(torch.autograd.Function):
    """Flash and memory-efficient attention: output and one fp32 sum a row are kept, scores never exist.

    Backward accumulates the gradient of the queries in fp32, and with fewer key heads than query heads takes their
    gradients per query head before summing (flash-attention 2, `mha_bwd`; PyTorch carries the same code).
    """

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, mask: Any) -> Any:
        batch, heads, length, _ = query.shape
        out = query.new_empty(batch, length, heads, value.shape[-1]).transpose(1, 2)
        sums = query.new_empty((batch, heads, length), dtype=torch.float32)
        ctx.save_for_backward(query, key, value, out, sums, mask)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        query, key, value, _, _, _ = ctx.saved_tensors
        batch, heads, length, width = query.shape
        working = [
            query.new_empty((batch, heads, _up(length, ROWS), _up(width, WIDTH)), dtype=torch.float32),
            query.new_empty((batch, heads, _up(length, ROWS)), dtype=torch.float32),
        ]
        if key.shape[1] != heads:
            working += [key.new_empty(batch, key.shape[2], heads, t.shape[-1]) for t in (key, value)]
        made = [torch.empty_like(t.transpose(1, 2)).transpose(1, 2) for t in (query, key, value)]
        del working
        return (*made, None)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """In the place of `scaled_dot_product_attention` on a GPU; a boolean mask becomes one of the queries' type."""
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = attn_mask.new_empty(attn_mask.shape, dtype=query.dtype)
    kept: Any = _Attention.apply
    result: torch.Tensor = kept(query, key, value, attn_mask)
    return result


def _flash_forward(module: nn.Module, query: Any, key: Any, value: Any, attention_mask: Any, **_: Any) -> Any:
    """As transformers' flash path: 16-bit inputs, padded rows taken out before and put back after."""
    if query.dtype == torch.float32:
        target = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.bfloat16
        query, key, value = (t.to(target) for t in (query, key, value))
    if attention_mask is not None:
        query, key, value = (t.transpose(1, 2).clone().transpose(1, 2) for t in (query, key, value))
    kept: Any = _Attention.apply
    out = kept(query, key, value, None).transpose(1, 2)
    return (out.clone() if attention_mask is not None else out), None


def _flash_on_repeated_keys(module: nn.Module, query: Any, key: Any, value: Any, mask: Any, **options: Any) -> Any:
    """As `_flash_forward`, key heads repeated for every query head before."""
    from transformers.integrations.sdpa_attention import repeat_kv

    times = query.shape[1] // key.shape[1]
    return _flash_forward(module, query, repeat_kv(key, times), repeat_kv(value, times), mask, **options)


def _flash_mask(*_: Any, attention_mask: Any = None, **__: Any) -> Any:
    """The two-dimensional mask where rows are padded."""
    return attention_mask


def register(kind: str, generation: Generation) -> str:
    """Make flash attention as a model of type `kind` calls it known to transformers; returns its name."""
    from transformers import AttentionInterface, AttentionMaskInterface

    repeated = generation.repeats_keys and kind in REPEATED_KEYS
    name = FLASH + ("_on_repeated_keys" if repeated else "")
    AttentionInterface.register(name, _flash_on_repeated_keys if repeated else _flash_forward)
    AttentionMaskInterface.register(name, _flash_mask)
    return name


class _RmsNorm(torch.autograd.Function):
    """One output and one fp32 value a row are made; the gradient is written over the one that arrives."""

    @staticmethod
    def forward(ctx: Any, values: Any, weight: Any) -> Any:
        rows = values.new_empty(values.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(values, weight, rows)
        return torch.empty_like(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], torch.empty_like(ctx.saved_tensors[1]) if ctx.needs_input_grad[1] else None


class _Rotated(torch.autograd.Function):
    """Rotary positions written over their input, and gradients over theirs."""

    @staticmethod
    def forward(ctx: Any, values: Any) -> Any:
        return values.view(values.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0].contiguous() if not gradients[0].transpose(1, 2).is_contiguous() else gradients[0]


def _fast_norm(module: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    kept: Any = _RmsNorm.apply
    return lambda hidden_states: kept(hidden_states, module.weight)


def _fast_rotary(query: Any, key: Any, *_: Any, **__: Any) -> Any:
    turned: Any = _Rotated.apply
    return turned(query), turned(key)


def fuse(model: nn.Module) -> None:
    """Exchange the norms of a model for fused ones."""
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm") and isinstance(getattr(module, "weight", None), torch.Tensor):
            module.forward = _fast_norm(module)  # type: ignore[method-assign]


def _norm_in_fp32(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Autocast on a GPU takes layer norms in fp32 and leaves the result there; autocast on a CPU does not."""

    def norm(values: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> torch.Tensor:
        if not torch.is_autocast_enabled("cpu"):
            return original(values, shape, weight, bias, eps)
        with torch.autocast("cpu", enabled=False):
            return original(
                *(t.float() if isinstance(t, torch.Tensor) else t for t in (values, shape, weight, bias)), eps
            )

    return norm


@contextmanager
def gpu_kernels(model: Any, generation: Generation) -> Iterator[None]:
    """Attention as a GPU runs it, and rotary positions in place where the generation fuses them."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(functional, "scaled_dot_product_attention", attention))
        stack.enter_context(patch.object(functional, "layer_norm", _norm_in_fp32(functional.layer_norm)))
        if generation.fused_kernels:
            base = model.get_base_model() if hasattr(model, "get_base_model") else model
            code = sys.modules[type(base).__module__]
            if hasattr(code, "apply_rotary_pos_emb"):
                stack.enter_context(patch.object(code, "apply_rotary_pos_emb", _fast_rotary))
        yield
