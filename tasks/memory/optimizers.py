"""The optimizers of a trace: the real ones, built as the Trainer builds them, and models of the 8-bit ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from tasks.memory.settings import TraceSettings

BLOCK = 256
"""Values that share one scale in bitsandbytes' 8-bit optimizers."""
SMALLEST = 4096
"""Parameters with fewer values keep 32-bit states (bitsandbytes' min_8bit_size)."""


class EightBitAdamW(torch.optim.Optimizer):
    """What bitsandbytes' 8-bit AdamW keeps: two states of one byte a value, one fp32 scale a block. No temporaries."""

    def __init__(self, parameters: Iterable[Any]) -> None:
        super().__init__(parameters, {"lr": 1e-3})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Creates the states at the first call, works in place afterwards."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None or self.state[parameter]:
                    continue
                values = parameter.numel()
                kind = torch.float32 if values < SMALLEST else torch.uint8
                for name in ("1", "2"):
                    self.state[parameter]["state" + name] = torch.empty(values, dtype=kind)
                    if kind is torch.uint8:
                        self.state[parameter]["absmax" + name] = torch.empty(-(-values // BLOCK))


def build(settings: TraceSettings, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Two groups, with and without weight decay, as `Trainer.create_optimizer` makes them.

    Foreach on CUDA and the loop on the CPU are torch's own defaults, given here because the trace has no GPU.
    """
    trainable = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trainable if p.dim() > 1]}, {"params": [p for p in trainable if p.dim() <= 1]}]
    groups = [g for g in groups if g["params"]]
    foreach = settings.device == "cuda"
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=1e-4, foreach=foreach)
    if settings.optimizer == "adamw_fused":
        return torch.optim.AdamW(groups, lr=1e-4, fused=True)
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=1e-4, foreach=foreach)
    if settings.optimizer == "adafactor":
        import transformers.optimization as optimization

        adafactor: Any = optimization.Adafactor
        chosen: torch.optim.Optimizer = adafactor(groups, lr=1e-4, scale_parameter=False, relative_step=False)
        return chosen
    return EightBitAdamW(groups)


def states(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Every state tensor."""
    return [v for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]


def paged(settings: TraceSettings) -> bool:
    """Whether states live in host memory that the driver pages in and out."""
    return settings.optimizer.startswith("paged")
