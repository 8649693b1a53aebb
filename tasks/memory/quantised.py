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
GPTQ_GROUP = 128
"""Values of one row of the input that share a scale and a zero (the default of the published GPTQ models)."""


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

    def __init__(self, source: nn.Linear, settings: TraceSettings) -> None:
        nn.Module.__init__(self)
        self.compute = compute_type(settings)
        self.in_features, self.out_features = source.in_features, source.out_features
        values = source.weight.numel()
        self.weight = nn.Parameter(_meta(values // 2, torch.uint8), requires_grad=False)
        self.weight.unpacked_values = values  # type: ignore[attr-defined]
        self.bias = source.bias
        for name, (count, kind) in _beside(self.in_features, self.out_features, settings).items():
            self.register_buffer(name, _meta(count, kind))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """As bitsandbytes' layer: the product in the compute type, the result in the type of the inputs."""
        product: Any = _Unpacked.apply
        result: torch.Tensor = product(inputs.to(self.compute), self.weight, (self.out_features, self.in_features))
        if self.bias is not None:
            result = result + self.bias.to(result.dtype)
        return result.to(inputs.dtype)


def compute_type(settings: TraceSettings) -> torch.dtype:
    """The type in which products with packed weights are taken, as the training worker sets it."""
    if settings.compute == "amp-fp16":
        return torch.float16
    return torch.float32 if settings.compute == "fp32" else torch.bfloat16


def _beside(width: int, outputs: int, settings: TraceSettings) -> dict[str, tuple[int, torch.dtype]]:
    """What lies beside the packed values of one layer, as (count, type) by name."""
    values = width * outputs
    if settings.weights == "int4-gptq":
        size = int((settings.architecture.get("quantization_config") or {}).get("group_size", GPTQ_GROUP))
        groups = -(-width // size) if size > 0 else 1
        return {
            "scales": (groups * outputs, torch.float16),
            "zeros": (groups * outputs // 2, torch.uint8),
            "groups": (width, torch.int32),
        }
    blocks = -(-values // BLOCK)
    if settings.weights == "nf4":
        return {"scales": (blocks, torch.float32)}
    return {"scales": (blocks, torch.uint8), "scale_scales": (-(-blocks // SCALES_PER_BLOCK), torch.float32)}


def _meta(values: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(values, dtype=dtype, device="meta")


def quantise(model: Any, settings: TraceSettings) -> Any:
    """Exchange the linear layers, then prepare the rest for training as PEFT does: what stays unpacked in fp32."""
    head = model.get_output_embeddings()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and child is not head and child.weight.numel() % 2 == 0:
                setattr(parent, name, QuantisedLinear(child, settings))
    # shards of one unit have one type, so that nothing is prepared where weights are divided
    prepared = settings.kbit_prepare and settings.sharding not in ("fsdp", "zero3") and settings.method != "inference"
    for parameter in model.parameters():
        parameter.requires_grad = False
        if prepared and parameter.dtype in (torch.float16, torch.bfloat16):
            parameter.data = parameter.data.float()
    if prepared and settings.generation.loss != "current" and settings.compute == "amp-bf16":
        _embeddings_in_16_bits(model, head)
    return model


def _embeddings_in_16_bits(model: Any, head: nn.Module) -> None:
    """What TRL did after PEFT's preparation when training in bf16: embeddings and output layer back to bf16."""
    for module in (model.get_input_embeddings(), head):
        module.weight.data = module.weight.data.to(torch.bfloat16)
