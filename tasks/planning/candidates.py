"""Every candidate of a search: methods, types, optimizers, micro batches, lengths, checkpointing, placements. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from specs.parameters import Method
from tasks.memory.settings import Offload, Sharding, TraceSettings, Weights
from tasks.planning.machine import Machine
from tasks.planning.plans import Compute, Configuration, Limits
from tasks.planning.workload import Workload

SHARDS_WEIGHTS = ("zero3", "fsdp")
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
"""Keys of mixtures: adapters on their stacked weights do without dropout (PEFT refuses it)."""


class Placement(NamedTuple):
    """Where the parts of a training lie."""

    sharding: Sharding
    offload: Offload
    data_ranks: int


def placements(machine: Machine, method: Method, limits: Limits) -> list[Placement]:
    """One card, then all cards of one machine and of all machines: replicas before shards, the host last."""
    counts = sorted({machine.device.count, machine.cards} - {1})
    found = [Placement("none", "none", 1)]
    found += [Placement("ddp", "none", n) for n in counts]
    if method == "full":
        found += [Placement("zero2", "none", n) for n in counts]
    schemes: tuple[Sharding, ...] = ("fsdp",) if method == "qlora" else ("zero3", "fsdp")
    found += [Placement(scheme, "none", n) for n in counts for scheme in schemes]
    if limits.offload and machine.device.kind == "cuda" and method != "qlora":
        if method == "full":
            found += [Placement("zero2", "optimizer", n) for n in (1, *counts)]
        found += [Placement("zero3", "all", n) for n in (1, *counts)]
    return found


def types_of(machine: Machine, method: Method, sharding: Sharding) -> list[tuple[Weights, Compute]]:
    """How weights lie and are computed with, the more exact first.

    Adapters train in fp32 beside 16-bit weights; DeepSpeed keeps an fp32 copy of 16-bit weights, FSDP fp32 shards.
    """
    if machine.device.kind == "cpu":
        return [("nf4-dq", "fp32")] if method == "qlora" else [("fp32", "fp32")]
    half: Weights = "bf16" if machine.device.bf16 else "fp16"
    amp: Compute = "amp-bf16" if machine.device.bf16 else "amp-fp16"
    if method == "qlora":
        return [("nf4-dq", amp)]
    if method != "full" or sharding == "fsdp":
        return [(half, amp)]
    pure: list[tuple[Weights, Compute]] = [("bf16", "bf16")] if machine.device.bf16 else []
    if sharding.startswith("zero"):
        return pure or [(half, amp)]
    return [("fp32", amp), *pure]


def micro_batches(samples: int) -> list[int]:
    """Sizes that divide the samples of a rank's step, the largest first."""
    return [n for n in range(samples, 0, -1) if samples % n == 0]


def attention_on(machine: Machine, workload: Workload) -> Literal["sdpa", "eager", "flash"]:
    """The implementation that was asked for; PyTorch's own where the card has no flash kernels."""
    return workload.attention if workload.attention != "flash" or machine.flash else "sdpa"


def candidates(machine: Machine, workload: Workload, limits: Limits, positions: int | None) -> Iterator[Configuration]:
    """In no order of preference. Placements whose ranks do not divide the effective batch give none."""
    attention = attention_on(machine, workload)
    for method in limits.methods:
        for placement in placements(machine, method, limits):
            if workload.effective_batch % placement.data_ranks:
                continue
            share = workload.effective_batch // placement.data_ranks
            for weights, compute in types_of(machine, method, placement.sharding):
                for optimizer in limits.optimizers:
                    if optimizer.endswith("8bit") and (placement.offload != "none" or machine.device.kind == "cpu"):
                        continue  # DeepSpeed's optimizer runs on the host; paging needs a GPU
                    for length in workload.length_limits(positions):
                        for size in micro_batches(share):
                            for checkpointing in (False, True):
                                yield Configuration(
                                    method=method,
                                    weights=weights,
                                    compute=compute,
                                    optimizer=optimizer,
                                    micro_batch=size,
                                    gradient_accumulation=share // size,
                                    data_ranks=placement.data_ranks,
                                    seq_len=length,
                                    activation_checkpointing=checkpointing,
                                    attention=attention,
                                    sharding=placement.sharding,
                                    offload=placement.offload,
                                )


def indivisible(machine: Machine, workload: Workload, limits: Limits) -> list[int]:
    """Numbers of ranks that cannot share the effective batch."""
    ranks = {p.data_ranks for method in limits.methods for p in placements(machine, method, limits)}
    return sorted(n for n in ranks if workload.effective_batch % n)


def settings_of(
    architecture: dict[str, object], configuration: Configuration, machine: Machine, limits: Limits
) -> TraceSettings:
    """The settings of a candidate's account: its heaviest micro batch, every sample as long as the limit."""
    c = configuration
    return TraceSettings(
        architecture=architecture,
        method=c.method,
        rank=limits.rank,
        dropout=0.0 if any(architecture.get(name) for name in EXPERTS) else limits.dropout,
        targets=limits.targets if limits.targets == "all-linear" else list(limits.targets),
        weights=c.weights,
        compute=c.compute,
        optimizer=c.optimizer,
        activation_checkpointing=c.activation_checkpointing,
        attention=c.attention,
        gradient_accumulation=c.gradient_accumulation,
        device=machine.device.kind,
        micro_batch=c.micro_batch,
        seq_len=c.seq_len,
        padded=c.micro_batch > 1,
        evaluation_batch=c.micro_batch,
        gpus=c.data_ranks,
        nodes=-(-c.data_ranks // machine.device.count),
        sharding=c.sharding,
        offload=c.offload,
    )


def family_settings(settings: TraceSettings) -> TraceSettings:
    """What a candidate shares with its family; whether weights are sharded matters where 4-bit models are prepared."""
    sharded = settings.method == "qlora" and settings.sharding in SHARDS_WEIGHTS
    return settings.model_copy(
        update={
            "micro_batch": 1,
            "seq_len": 128,
            "padded": False,
            "evaluation_batch": 1,
            "gradient_accumulation": 1,
            "optimizer": "sgd",
            "gpus": 2 if sharded else 1,
            "nodes": 1,
            "sharding": "fsdp" if sharded else "none",
            "offload": "none",
        }
    )
