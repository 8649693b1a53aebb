"""Other estimators of training memory, by their published formulas, on the sizes of our models.

None of them knows activations; each is given the parameter count of the real model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tasks.memory.settings import TraceSettings


class Sizes(NamedTuple):
    """What they are told."""

    total: int
    trainable: int
    settings: TraceSettings


def accelerate_estimate(sizes: Sizes) -> float:
    """`accelerate estimate-memory`: the largest of model, gradients, optimizer and step for training with Adam.

    accelerate/commands/estimate.py, `estimate_training_usage`: in mixed precision fp32 weights, 1.5 times that for
    gradients, twice for the optimizer and the step; in fp32 four times for the step. It has no notion of adapters.
    """
    fp32 = 4.0 * sizes.total
    return 4 * fp32 if sizes.settings.compute == "fp32" else 2 * fp32


def deepspeed_formulas(sizes: Sizes) -> float:
    """DeepSpeed's `estimate_zero{2,3}_model_states_mem_needs` without offload, buffer factor 1.5.

    Stage 2 and one device: 4 bytes a parameter and 16 divided by the ranks. Stage 3: 18 divided by the ranks, times
    the factor. FSDP is taken as stage 3.
    """
    ranks, factor = sizes.settings.gpus, 1.5
    if sizes.settings.sharding in ("zero3", "fsdp"):
        return 18.0 * sizes.total / ranks * factor
    return (4.0 * sizes.total + 16.0 * sizes.total / ranks) * factor


def sixteen_bytes(sizes: Sizes) -> float:
    """The rule of thumb with adapters in mind: weights as stored, and 16 bytes a trained parameter, over all ranks."""
    bytes_each = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}.get(sizes.settings.weights, 0.5)
    frozen = sizes.total - sizes.trainable
    return (frozen * bytes_each + 16.0 * sizes.trainable) / sizes.settings.gpus


ESTIMATORS: dict[str, Callable[[Sizes], float]] = {
    "accelerate": accelerate_estimate,
    "DeepSpeed": deepspeed_formulas,
    "16 bytes": sixteen_bytes,
}
