"""The account of ranks that divide layers: that of the fullest stage, traced, or in closed form with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tasks.memory import model as models
from tasks.memory.account import Account, How, StagePeak, assemble
from tasks.memory.assembly import named, notes, whole_of, with_autocast
from tasks.memory.fold import folded
from tasks.memory.grid import GridRank, StageOf, of_one_device, stages_of
from tasks.memory.host import host
from tasks.memory.ranks import Parts
from tasks.memory.settings import FRAMEWORK_BYTES, LIBRARY_BYTES, TraceSettings
from tasks.memory.sizes import parameters_of
from tasks.memory.timeline import Peak
from tasks.memory.traced import Trace, by_phase

TENSOR = "layers are divided as transformers and PEFT divide them (base_model_tp_plan): logits are whole on every rank"
PIPELINE = (
    "stages run as torch.distributed.pipelining does with schedule 1F1B, one row of layers each: transformers' own "
    "stages do not train"
)
WIDTHS = (
    "PEFT gives adapters of layers divided by rows the width of one rank, which transformers takes for the whole: such "
    "a training fails at its first step; the account holds once that is mended"
)
REPLICAS = "replicas of a rank are counted by the buckets of their gradients, as DDP has them"
"""accelerate takes replicas beside tensor parallel only with FSDP, DeepSpeed and Megatron have them."""
BETWEEN = "stages between the second and the last hold less than the second: as many layers, fewer micro batches"


def account(settings: TraceSettings) -> Account:
    """The account of the fullest stage; `stages` has the peak of each that differs."""
    settings = with_autocast(settings)
    why = not_traced(settings)
    if not why:
        try:
            return _account(settings, _traced, "traced", "")
        except Exception as error:  # private parts of three libraries and any model's code: the closed form answers
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            why = f"a rank cannot be run on fake tensors ({type(error).__name__}: {first[:160]})"
    return closed(settings, why)


def closed(settings: TraceSettings, why: str = "") -> Account:
    """The same in closed form, over the trace of a narrower model on one device; `why` it is not traced."""
    whole = folded(of_one_device(settings))
    hidden = int(models.configuration(settings).hidden_size)

    def one(asked: TraceSettings, stage: StageOf) -> Trace:
        rank = GridRank(whole_of(whole, hidden), asked, stage)
        return replace(
            whole,
            peaks={place: _peak(parts) for place, parts in rank.at(whole.peaks).items()},
            weight_bytes=round(rank.weights),
            trainable_bytes=round(rank.trainable),
            state_bytes=round(whole.state_bytes * rank.share),
            paged_bytes=round(whole.paged_bytes * rank.share),
            of_one_rank=True,
        )

    return _account(settings, one, "closed-form", why)


def _peak(parts: Parts) -> Peak:
    residents: dict[str, int] = {name: round(size) for name, size in parts.items()}
    return Peak(sum(residents.values()), residents)


def not_traced(settings: TraceSettings) -> str:
    """Why a rank cannot be traced, in words; empty where it can."""
    if settings.loss_path != "current":
        return "software of another time, or with fused kernels, divides layers by code of its own"
    if settings.quantised:
        return "4-bit weights are modelled by their layout, which transformers does not divide"
    if settings.method == "dora" and settings.tensor_parallel > 1:
        return "PEFT's DoRA cannot be divided: it adds divided and whole tensors"
    if settings.packed and settings.pipeline_stages > 1:
        return "the schedule sends hidden states alone, not the positions of packed rows"
    return ""


def _traced(settings: TraceSettings, stage: StageOf) -> Trace:
    from tasks.memory.grid_trace import folded_rank

    return folded_rank(settings, stage)


def _account(settings: TraceSettings, one: Callable[[TraceSettings, StageOf], Trace], how: How, why: str) -> Account:
    found = [(stage, one(settings, stage)) for stage in stages_of(settings)]
    parameters, trainable = _counted(settings)
    trained = settings.tensor_parallel * _of_all([trace.trainable_bytes for _, trace in found], settings)
    states = settings.tensor_parallel * _of_all([trace.state_bytes for _, trace in found], settings)
    accounts = []
    for _, trace in found:
        of_all = replace(trace, trainable_bytes=trained, state_bytes=states)
        beside = host(of_all, settings)
        accounts.append(
            assemble(
                {phase: named(peak.residents) for phase, peak in by_phase(trace.peaks).items()},
                framework_bytes=FRAMEWORK_BYTES[settings.device],
                library_bytes=LIBRARY_BYTES[settings.device],
                host_fixed_bytes=beside.peak_bytes,
                disk_bytes=beside.disk_bytes,
                trainable_parameters=trainable,
                total_parameters=parameters,
                method=how,
                micro_batch=settings.micro_batch,
                seq_len=settings.seq_len,
                notes=notes_of(settings, why),
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
    fullest = max(accounts, key=lambda a: a.peak_reserved_bytes)
    most = max(a.host_peak_bytes for a in accounts)
    return fullest.model_copy(update={"host_peak_bytes": most, "stages": peaks if len(peaks) > 1 else []})


def _of_all(sizes: list[int], settings: TraceSettings) -> int:
    """Over all stages, those between counted like the second."""
    return sum(sizes) + (sizes[1] * (settings.pipeline_stages - 3) if len(sizes) > 2 else 0)


def notes_of(settings: TraceSettings, why: str) -> list[str]:
    """What the account assumes, in words."""
    alone = settings.model_copy(update={"sharding": "none"})
    found = list(notes(alone))
    if settings.tensor_parallel > 1:
        found.append(TENSOR)
        if settings.method == "lora" and _by_rows(settings):
            found.append(WIDTHS)
    if settings.pipeline_stages > 1:
        found.append(f"{PIPELINE}; {settings.gradient_accumulation} micro batches make a step")
    if settings.pipeline_stages > 3:
        found.append(BETWEEN)
    if settings.sharding == "ddp":
        found.append(REPLICAS)
    found.append("memory of the communication library on the GPU is not counted: it has not been measured")
    return [*found, f"not traced on a rank: {why}"] if why else found


def _by_rows(settings: TraceSettings) -> bool:
    """Whether adapters sit on layers that are divided by rows."""
    plan: dict[str, str] = getattr(models.configuration(settings), "base_model_tp_plan", None) or {}
    rows = {name.rpartition(".")[2] for name, style in plan.items() if style == "rowwise"}
    return settings.targets == "all-linear" or any(target.rpartition(".")[2] in rows for target in settings.targets)


def _counted(settings: TraceSettings) -> tuple[int, int]:
    """Parameters of the whole model, and trained ones, from two shallow ones."""
    wanted = int(models.configuration(settings).num_hidden_layers)
    counts = []
    for depth in (1, 2):
        model = models.build(settings, depth)
        counts.append((parameters_of(model), sum(p.numel() for p in model.parameters() if p.requires_grad)))
    (one, trained), (two, more) = counts
    return one + (two - one) * (wanted - 1), trained + (more - trained) * (wanted - 1)
