"""From the options of `gatewright estimate` to the settings of an account; contradictions are named. No torch."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from specs.errors import InputError
from specs.parameters import TrainingConfiguration
from tasks.memory.dividing import of_grid
from tasks.memory.settings import TraceSettings, refuse_contradictions

FOUR_BITS = ("nf4", "nf4-dq", "int4-gptq")
OPTION = {"rank": "lora-rank", "targets": "lora-targets"}
"""Settings whose option has another name."""


def settings_of(architecture: dict[str, Any], options: dict[str, Any]) -> TraceSettings:
    """Settings from options; those that are null take the default of the method.

    Raises `InputError` with every value that is not known, or the first contradiction.
    """
    chosen = {name: value for name, value in options.items() if value is not None}
    method = chosen.get("method", "lora")
    chosen.setdefault("weights", "nf4-dq" if method == "qlora" else "bf16")
    chosen.setdefault("compute", "fp32" if chosen["weights"] == "fp32" else "bf16")
    chosen["padded"] = False
    if method == "inference":
        chosen["optimizer"] = "sgd"
    try:
        settings = TraceSettings.model_validate({"architecture": architecture, **chosen})
    except ValidationError as error:
        lines = [f"--{_option(e['loc'])}: {e['msg']}" for e in error.errors()]
        raise InputError("; ".join(lines), "gatewright estimate --help lists the values") from None
    refuse_contradictions(settings)
    if settings.divides_layers:
        settings = of_grid(settings)
    else:
        _refuse_sharing(settings)
    _refuse_packing(settings)
    _refuse_own(settings)
    if method in TrainingConfiguration.model_fields["method"].annotation.__args__:  # type: ignore[union-attr]
        _refuse_method(settings)
    return settings


def _option(place: tuple[Any, ...]) -> str:
    name = str(place[0]) if place else "?"
    return OPTION.get(name, name).replace("_", "-")


def _refuse_method(settings: TraceSettings) -> None:
    four = settings.weights in FOUR_BITS
    if settings.method == "qlora" and not four:
        raise InputError("method qlora needs 4-bit weights", "use --weights nf4 or nf4-dq, or --method lora")
    if settings.method != "qlora" and four:
        raise InputError(f"method {settings.method} cannot train beside 4-bit weights", "use --method qlora")


def _refuse_packing(settings: TraceSettings) -> None:
    if settings.packed and settings.method == "inference":
        raise InputError("packing is a setting of training", "leave --packing out for --method inference")
    if settings.packed and settings.attention == "flash" and settings.micro_batch > 1:
        raise InputError(
            "attention flash keeps samples of a packed row apart only with one row per forward pass",
            "use --micro-batch 1, or --attention sdpa",
        )


def _refuse_own(settings: TraceSettings) -> None:
    """Trainers with code of their own run one way only."""
    if settings.generation.own is None:
        if settings.offload_activations:
            raise InputError(
                f"the software of --loss-path {settings.loss_path} does not move activations to the host",
                "leave --offload-activations out, or name one of prime-rl's",
            )
        return
    name = settings.loss_path
    if settings.sharding != "fsdp" or settings.offload != "none":
        raise InputError(f"{name} shards with FSDP, on one GPU too", "add --sharding fsdp, without --offload")
    if settings.method not in ("full", "lora"):
        raise InputError(f"{name} trains all weights or adapters, not {settings.method}", "use --method full or lora")
    if settings.weights != "fp32" or settings.compute != "amp-bf16":
        raise InputError(f"{name} keeps fp32 shards and computes in bf16", "use --weights fp32 --compute amp-bf16")
    if settings.packed or settings.padded or settings.attention != "flash":
        raise InputError(f"{name} is traced on whole rows with flash attention", "use --attention flash, no --packing")


def _refuse_sharing(settings: TraceSettings) -> None:
    if settings.gpus % settings.nodes:
        raise InputError(
            f"{settings.gpus} GPUs cannot be spread evenly over {settings.nodes} machines",
            "--gpus counts the GPUs of all machines together",
        )
    if settings.gpus > 1 and settings.sharding == "none":
        raise InputError(f"{settings.gpus} GPUs need a scheme", "add --sharding ddp, zero1, zero2, zero3 or fsdp")
    if settings.offload != "none" and settings.sharding not in ("zero2", "zero3", "fsdp"):
        raise InputError(
            f"--offload {settings.offload} is known for zero2, zero3 and fsdp, not for {settings.sharding}",
            "choose one of them, or --optimizer paged_adamw_8bit on one GPU",
        )
    if settings.offload == "all" and settings.sharding == "zero2":
        raise InputError("zero2 keeps all weights on every GPU", "use --offload optimizer, or --sharding zero3")
    if settings.method == "inference" and settings.sharding != "none":
        raise InputError("inference is predicted for one GPU", "leave --sharding out")
