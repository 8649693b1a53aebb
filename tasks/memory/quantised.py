"""4-bit base weights by their layout in bitsandbytes, for traces on machines without a GPU.

A linear layer keeps two values a byte and one fp32 scale per 64 values; double quantisation keeps 8-bit scales with
one fp32 scale per 256 of them (QLoRA, arXiv:2305.14314, section 3). Forward and backward unpack the whole weight into
the compute type for the time of one product. Embeddings and the output head stay 16-bit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tasks.memory.settings import TraceSettings

BLOCK, SCALES_PER_BLOCK = 64, 256


class _Unpacked(torch.autograd.Function):
    """A product with an unpacked copy of the weight; nothing of the copy is kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, packed: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        ctx.save_for_backward(packed)
        ctx.shape = shape
        return inputs @ torch.empty(shape, dtype=inputs.dtype, device=inputs.device).t()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        (gradient,) = gradients
        weight = torch.empty(ctx.shape, dtype=gradient.dtype, device=gradient.device)
        return gradient @ weight, None, None


class QuantisedLinear(nn.Linear):
    """A linear layer whose weight is packed; `unpacked_values` on the parameter says how many values it stands for."""

    def __init__(self, source: nn.Linear, double: bool) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = source.in_features, source.out_features
        values = source.weight.numel()
        self.weight = nn.Parameter(_meta(values // 2, torch.uint8), requires_grad=False)
        self.weight.unpacked_values = values  # type: ignore[attr-defined]
        self.bias = source.bias
        blocks = -(-values // BLOCK)
        self.register_buffer("scales", _meta(blocks, torch.uint8 if double else torch.float32))
        if double:
            self.register_buffer("scale_scales", _meta(-(-blocks // SCALES_PER_BLOCK), torch.float32))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """As bitsandbytes' matmul_4bit without a fused kernel."""
        product: Any = _Unpacked.apply
        result: torch.Tensor = product(inputs, self.weight, (self.out_features, self.in_features))
        return result if self.bias is None else result + self.bias.to(result.dtype)


def _meta(values: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(values, dtype=dtype, device="meta")


def quantise(model: Any, settings: TraceSettings) -> Any:
    """Exchange the linear layers, then prepare the rest for training as PEFT does: what stays unpacked in fp32."""
    head = model.get_output_embeddings()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and child is not head and child.weight.numel() % 2 == 0:
                setattr(parent, name, QuantisedLinear(child, settings.weights == "nf4-dq"))
    for parameter in model.parameters():
        parameter.requires_grad = False
        if settings.kbit_prepare and parameter.dtype in (torch.float16, torch.bfloat16):
            parameter.data = parameter.data.float()
    return model
