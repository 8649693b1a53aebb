"""From the peaks of a trace to an account: ranks, host and disk, and what is assumed. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.memory.account import Account, How, assemble
from tasks.memory.host import host
from tasks.memory.ranks import Rank, Whole
from tasks.memory.settings import FRAMEWORK_BYTES, LIBRARY_BYTES, TraceSettings
from tasks.memory.sharding import rank_of
from tasks.memory.timeline import Peak, Place
from tasks.memory.traced import Trace, by_phase

SYNCED = (
    "every micro batch reduces its gradients (gradient_accumulation_kwargs of Trainer's accelerator_config: "
    "sync_each_batch: true); without it a rank keeps all of them whole until the last one"
)


def assembled(trace: Trace, settings: TraceSettings, hidden_size: int, traced_as: How) -> Account:
    """The account of one trace. With several ranks it is that of one, or one device's, divided as the scheme does."""
    found, offloaded = trace.peaks, 0.0
    divided = settings.sharding != "none" and not trace.of_one_rank
    if divided:
        rank = rank_of(whole_of(trace, hidden_size), settings)
        found, offloaded = _divided(trace.peaks, rank), rank.host_bytes()
    beside = host(trace, settings, offloaded)
    return assemble(
        {phase: named(peak.residents) for phase, peak in by_phase(found).items()},
        framework_bytes=FRAMEWORK_BYTES[settings.device],
        library_bytes=LIBRARY_BYTES[settings.device],
        reserved_bytes=trace.reserved_bytes,
        host_fixed_bytes=beside.peak_bytes,
        disk_bytes=beside.disk_bytes,
        pinned_bytes=beside.pinned_bytes,
        trainable_parameters=trace.trainable_parameters,
        total_parameters=trace.total_parameters,
        method="closed-form" if divided else traced_as,
        micro_batch=settings.micro_batch,
        seq_len=settings.seq_len,
        notes=notes(settings, divided),
    )


def peaks_of_rank(trace: Trace, settings: TraceSettings, hidden_size: int) -> dict[Place, Peak]:
    """The places of one device's trace as one rank of several has them, in closed form."""
    if settings.sharding == "none" or trace.of_one_rank:
        return trace.peaks
    return _divided(trace.peaks, rank_of(whole_of(trace, hidden_size), settings))


def not_traced(settings: TraceSettings) -> str:
    """Why a rank cannot be traced by itself, in words; empty where it can, or where there is one device only."""
    if settings.sharding == "none":
        return ""
    if settings.sharding != "fsdp":
        return f"{settings.sharding} is not run on fake tensors, FSDP alone is"
    if settings.generation.reentrant:
        return "the FSDP of that time is not in the torch that is installed"
    if settings.quantised:
        return "4-bit weights are modelled by their layout, which fully_shard does not divide"
    if settings.offload != "none":
        return "on fake tensors host and device are one"
    if (settings.gpus < 2 and settings.generation.own is None) or settings.device != "cuda":
        return "fewer than two GPUs share nothing"
    return ""


def with_autocast(settings: TraceSettings) -> TraceSettings:
    """The trainers of 2024 ran 4-bit models under autocast, also where compute was said to be bf16."""
    if not settings.quantised or settings.compute != "bf16" or settings.method == "inference":
        return settings
    return settings.model_copy(update={"compute": "amp-bf16"}) if settings.generation.autocast_with_4_bits else settings


def gathered_in_16_bits(settings: TraceSettings) -> TraceSettings:
    """FSDP with mixed precision gathers fp32 shards in the compute type: activations are those of 16-bit weights."""
    if settings.sharding != "fsdp" or settings.weights != "fp32" or not settings.compute.startswith("amp"):
        return settings
    kind = "fp16" if settings.compute == "amp-fp16" else "bf16"
    return settings.model_copy(update={"weights": kind, "in_fp32": True})


def whole_of(trace: Trace, hidden_size: int) -> Whole:
    """What ranks divide."""
    return Whole(
        layers=trace.layers,
        weight_bytes=trace.weight_bytes - trace.buffer_bytes,
        buffer_bytes=trace.buffer_bytes,
        layer_weight_bytes=trace.layer_weight_bytes,
        total_parameters=trace.total_parameters,
        trainable_parameters=trace.trainable_parameters,
        trainable_bytes=trace.trainable_bytes,
        state_bytes=trace.state_bytes,
        layer_input_bytes=trace.layer_input_bytes,
        hidden_size=hidden_size,
        embedding_bytes=trace.embedding_bytes,
    )


def _divided(peaks: Mapping[Place, Peak], rank: Rank) -> dict[Place, Peak]:
    found = {}
    for place, whole in rank.places(peaks).items():
        if place.phase not in ("build", "end"):
            parts = {name: round(size) for name, size in rank.at(place, whole).items()}
            found[place] = Peak(sum(parts.values()), parts)
    return found


def notes(settings: TraceSettings, divided: bool = True) -> list[str]:
    """What the account assumes beside the trace, in words; `divided` where ranks are not traced by themselves."""
    found = []
    if settings.attention != "eager" and settings.device == "cuda":
        found.append("attention is modelled by what its GPU kernel keeps and takes")
    if settings.optimizer.endswith("8bit"):
        found.append("8-bit optimizer states are modelled by their layout: 2 bytes a value, 2 scales per 256")
    if settings.quantised:
        found.append("4-bit weights are modelled by their layout; fused kernels of the GPU may need less")
    if settings.sharding != "none":
        if divided:
            found.append(f"activations are traced, what {settings.sharding} divides and gathers is in closed form")
        else:
            by = "accelerate" if settings.generation.own is None else "the trainer's own code"
            found.append(f"one rank is traced: fully_shard itself ran, set up as by {by}, on a group without others")
            found.append("reserved memory is what the pools of its streams reach, each at its own moment")
        if settings.sharding == "fsdp" and settings.gradient_accumulation > 1 and settings.generation.own is None:
            found.append(SYNCED)
        found.append("memory of the communication library on the GPU is not counted: it has not been measured")
    if settings.generation.fused_kernels:
        found.append("norms, rotary positions and adapters of 4-bit layers run as fused kernels")
    return found


def named(residents: Mapping[str, int]) -> dict[str, int]:
    return {name: size for name, size in residents.items() if size > 0}
