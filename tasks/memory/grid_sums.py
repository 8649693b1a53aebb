"""From the traces of ranks that divide layers to one account: that of the fullest stage. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tasks.memory.account import Account, How, StagePeak, assemble
from tasks.memory.assembly import named, notes, whole_of
from tasks.memory.grid import GridRank, StageOf
from tasks.memory.host import host
from tasks.memory.ranks import Parts
from tasks.memory.settings import FRAMEWORK_BYTES, LIBRARY_BYTES, TraceSettings
from tasks.memory.timeline import Peak
from tasks.memory.traced import Trace, by_phase

TENSOR = "layers are divided as transformers and PEFT divide them (base_model_tp_plan): logits are whole on every rank"
PIPELINE = (
    "stages run as torch.distributed.pipelining does with schedule 1F1B, one row of layers each: transformers' own "
    "stages do not train"
)
REPLICAS = "replicas of a rank are counted by the buckets of their gradients, as DDP has them"
"""accelerate takes replicas beside tensor parallel only with FSDP, DeepSpeed and Megatron have them."""
BETWEEN = "stages between the second and the last hold less than the second: as many layers, fewer micro batches"
SILENT = "memory of the communication library on the GPU is not counted: it has not been measured"


def rank_trace(one_device: Trace, hidden_size: int, settings: TraceSettings, stage: StageOf) -> Trace:
    """What a rank of a stage holds, in closed form over the trace of `grid.of_one_device`."""
    rank = GridRank(whole_of(one_device, hidden_size), settings, stage)
    return replace(
        one_device,
        peaks={place: _peak(parts) for place, parts in rank.at(one_device.peaks).items()},
        weight_bytes=round(rank.weights),
        trainable_bytes=round(rank.trainable),
        state_bytes=round(one_device.state_bytes * rank.share),
        paged_bytes=round(one_device.paged_bytes * rank.share),
        of_one_rank=True,
    )


def _peak(parts: Parts) -> Peak:
    residents: dict[str, int] = {name: round(size) for name, size in parts.items()}
    return Peak(sum(residents.values()), residents)


def fullest(
    settings: TraceSettings,
    found: Sequence[tuple[StageOf, Trace]],
    how: How,
    *,
    parameters: int,
    trainable: int,
    said: Sequence[str] = (),
) -> Account:
    """The account of the fullest of several stages; sizes of traces are those of one rank. `said` are more notes."""
    trained = settings.tensor_parallel * _of_all([trace.trainable_bytes for _, trace in found], settings)
    states = settings.tensor_parallel * _of_all([trace.state_bytes for _, trace in found], settings)
    accounts = []
    for _, trace in found:
        beside = host(replace(trace, trainable_bytes=trained, state_bytes=states), settings)
        accounts.append(
            assemble(
                {phase: named(peak.residents) for phase, peak in by_phase(trace.peaks).items()},
                framework_bytes=FRAMEWORK_BYTES[settings.device],
                library_bytes=LIBRARY_BYTES[settings.device],
                host_fixed_bytes=beside.peak_bytes,
                disk_bytes=beside.disk_bytes,
                pinned_bytes=beside.pinned_bytes,
                trainable_parameters=trainable,
                total_parameters=parameters,
                method=how,
                micro_batch=settings.micro_batch,
                seq_len=settings.seq_len,
                notes=[*notes_of(settings), *said],
            )
        )
    peaks = [
        StagePeak(
            stage=stage.index,
            layers=stage.layers,
            in_flight=stage.in_flight,
            peak_allocated_bytes=one.peak_allocated_bytes,
            peak_reserved_bytes=one.peak_reserved_bytes,
            peak_phase=one.peak_phase,
        )
        for (stage, _), one in zip(found, accounts, strict=True)
    ]
    account = max(accounts, key=lambda a: a.peak_reserved_bytes)
    most = max(a.host_peak_bytes for a in accounts)
    return account.model_copy(update={"host_peak_bytes": most, "stages": peaks if len(peaks) > 1 else []})


def _of_all(sizes: list[int], settings: TraceSettings) -> int:
    """Over all stages, those between counted like the second."""
    return sum(sizes) + (sizes[1] * (settings.pipeline_stages - 3) if len(sizes) > 2 else 0)


def notes_of(settings: TraceSettings) -> list[str]:
    """What the account assumes, in words."""
    found = notes(settings.model_copy(update={"sharding": "none"}))
    if settings.tensor_parallel > 1:
        found.append(TENSOR)
    if settings.pipeline_stages > 1:
        found.append(f"{PIPELINE}; {settings.gradient_accumulation} micro batches make a step")
    if settings.pipeline_stages > 3:
        found.append(BETWEEN)
    if settings.sharding == "ddp":
        found.append(REPLICAS)
    return [*found, SILENT]
