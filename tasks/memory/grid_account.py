"""The account of ranks that divide layers, traced, or in closed form with the reason. Runs where torch is."""

from __future__ import annotations

from specs.errors import ModelError
from tasks.memory import model as models
from tasks.memory.account import Account
from tasks.memory.assembly import with_autocast
from tasks.memory.fold import folded
from tasks.memory.grid import StageOf, of_one_device, stages_of
from tasks.memory.grid_sums import fullest, rank_trace
from tasks.memory.settings import TraceSettings
from tasks.memory.sizes import parameters_of
from tasks.memory.traced import Trace

WIDTHS = (
    "PEFT gives adapters of layers divided by rows the width of one rank, which transformers takes for the whole: such "
    "a training fails at its first step; the account holds once that is mended"
)


def account(settings: TraceSettings) -> Account:
    """The account of the fullest stage; `stages` has the peak of each that differs.

    Raises `ModelError` for a model that transformers does not divide.
    """
    settings = with_autocast(settings)
    _require_plans(settings)
    why = not_traced(settings)
    if not why:
        try:
            found = [(stage, _traced(settings, stage)) for stage in stages_of(settings)]
        except Exception as error:  # private parts of three libraries and any model's code: the closed form answers
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            why = f"a rank cannot be run on fake tensors ({type(error).__name__}: {first[:160]})"
        else:
            parameters, trainable = _counted(settings)
            said = widths(settings)
            return fullest(settings, found, "traced", parameters=parameters, trainable=trainable, said=said)
    return closed(settings, why)


def closed(settings: TraceSettings, why: str = "") -> Account:
    """The same in closed form, over the trace of a narrower model on one device; `why` it is not traced."""
    one_device = folded(of_one_device(settings))
    hidden = int(models.configuration(settings).hidden_size)
    found = [(stage, rank_trace(one_device, hidden, settings, stage)) for stage in stages_of(settings)]
    parameters, trainable = _counted(settings)
    said = [*widths(settings), *([f"not traced on a rank: {why}"] if why else [])]
    return fullest(settings, found, "closed-form", parameters=parameters, trainable=trainable, said=said)


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


def widths(settings: TraceSettings) -> list[str]:
    """That the installed PEFT cannot run adapters of layers divided by rows, where there are some."""
    return [WIDTHS] if settings.tensor_parallel > 1 and settings.method == "lora" and _by_rows(settings) else []


def _by_rows(settings: TraceSettings) -> bool:
    """Whether adapters sit on layers that are divided by rows."""
    plan: dict[str, str] = getattr(models.configuration(settings), "base_model_tp_plan", None) or {}
    rows = {name.rpartition(".")[2] for name, style in plan.items() if style == "rowwise"}
    return settings.targets == "all-linear" or any(target.rpartition(".")[2] in rows for target in settings.targets)


def _require_plans(settings: TraceSettings) -> None:
    config = models.configuration(settings)
    plans = {"base_model_tp_plan": settings.tensor_parallel, "base_model_pp_plan": settings.pipeline_stages}
    for name, ranks in plans.items():
        if ranks > 1 and not getattr(config, name, None):
            raise ModelError(
                f"transformers has no plan to divide layers of a {config.model_type} model ({name})",
                "share it with --sharding fsdp or zero3",
            )


def _counted(settings: TraceSettings) -> tuple[int, int]:
    """Parameters of the whole model, and trained ones, from two shallow ones."""
    wanted = int(models.configuration(settings).num_hidden_layers)
    counts = []
    for depth in (1, 2):
        model = models.build(settings, depth)
        counts.append((parameters_of(model), sum(p.numel() for p in model.parameters() if p.requires_grad)))
    (one, trained), (two, more) = counts
    return one + (two - one) * (wanted - 1), trained + (more - trained) * (wanted - 1)
