"""Whether a model can be divided among tensor ranks and pipeline stages as it is asked for. Needs no torch."""

from __future__ import annotations

from typing import Any

from specs.errors import InputError
from tasks.memory.settings import TraceSettings

SIZES = {
    "num_attention_heads": "attention heads",
    "num_key_value_heads": "key heads",
    "vocab_size": "vocabulary",
}
"""What tensor ranks share evenly."""
NEEDED = ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size")
BUBBLE = 0.2
"""Of a pipeline's time at most, where nobody says how many micro batches a step has."""


def of_grid(settings: TraceSettings) -> TraceSettings:
    """The settings with the numbers that are left out. Raises `InputError` for what cannot be divided."""
    ranks = settings.tensor_parallel * settings.pipeline_stages
    if settings.gpus == 1:
        settings = settings.model_copy(update={"gpus": ranks})
    if settings.pipeline_stages > 1 and "gradient_accumulation" not in settings.model_fields_set:
        settings = settings.model_copy(update={"gradient_accumulation": fewest_micro_batches(settings.pipeline_stages)})
    _refuse_grid(settings, ranks)
    _refuse_sizes(settings)
    if settings.pipeline_stages > settings.gradient_accumulation:
        raise InputError(
            f"{settings.pipeline_stages} stages need at least as many micro batches a step",
            f"use --gradient-accumulation {fewest_micro_batches(settings.pipeline_stages)}, or leave it out",
        )
    return settings


def fewest_micro_batches(stages: int) -> int:
    """Of a step, so that the bubble stays within its share: (p - 1) / m <= BUBBLE."""
    return max(stages, -(-round((stages - 1) * 1000) // round(BUBBLE * 1000)))


def _refuse_grid(settings: TraceSettings, ranks: int) -> None:
    tensor, stages = settings.tensor_parallel, settings.pipeline_stages
    if settings.method == "inference":
        raise InputError("inference is predicted for one GPU", "leave --tensor-parallel and --pipeline-stages out")
    if settings.gpus % ranks:
        raise InputError(
            f"{settings.gpus} GPUs are no multiple of {tensor} tensor ranks times {stages} pipeline stages",
            f"use --gpus {ranks}, or {2 * ranks} with --sharding ddp",
        )
    if settings.gpus % settings.nodes:
        raise InputError(
            f"{settings.gpus} GPUs cannot be spread evenly over {settings.nodes} machines",
            "--gpus counts the GPUs of all machines together",
        )
    if tensor > settings.ranks_per_node:
        raise InputError(
            f"{tensor} tensor ranks do not lie in one machine with {settings.ranks_per_node} GPUs",
            "divide layers within a machine, and use --pipeline-stages across machines",
        )
    replicas = settings.gpus // ranks
    if settings.offload != "none" or settings.sharding not in ("none", "ddp"):
        raise InputError(
            "beside --tensor-parallel and --pipeline-stages only replicas are known",
            "leave --sharding and --offload out, or use --sharding ddp with more GPUs",
        )
    if replicas > 1 and settings.sharding == "none":
        raise InputError(
            f"{settings.gpus} GPUs hold {replicas} replicas of what {ranks} divide",
            "add --sharding ddp, or fewer --gpus",
        )
    if replicas == 1 and settings.sharding == "ddp":
        raise InputError(f"{ranks} GPUs hold one replica", f"leave --sharding out, or use --gpus {2 * ranks}")


def _refuse_sizes(settings: TraceSettings) -> None:
    known, tensor = settings.architecture, settings.tensor_parallel
    missing = [name for name in NEEDED if not isinstance(known.get(name), int)]
    if missing:
        raise InputError(
            f"the configuration does not say {', '.join(missing)}, so nobody can tell whether it can be divided",
            "use a config.json that does",
        )
    found = {name: known.get(name) or known["num_attention_heads"] for name in SIZES}
    odd = {SIZES[name]: int(size) for name, size in found.items() if int(size) % tensor}
    if odd:
        fitting = [t for t in range(2, tensor) if all(int(size) % t == 0 for size in found.values())]
        named = ", ".join(f"{name} ({size})" for name, size in odd.items())
        raise InputError(
            f"{tensor} tensor ranks do not divide the {named} of this model",
            f"use --tensor-parallel {_either(fitting)}" if fitting else "use --pipeline-stages, or --sharding fsdp",
        )
    layers, stages = int(known["num_hidden_layers"]), settings.pipeline_stages
    if layers % stages:
        fitting = [p for p in range(2, layers + 1) if layers % p == 0]
        raise InputError(
            f"{stages} stages do not divide the {layers} layers of this model",
            f"use --pipeline-stages {_either(fitting[:6])}" if fitting else "use --tensor-parallel",
        )


def _either(values: list[Any]) -> str:
    return " or ".join(str(value) for value in values)
