"""What a plan search is asked with: options made into a machine, a workload and limits, and a run that is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from flows.cli.find import look_for
from flows.cli.language import asked, of_project
from flows.cli.values import refuse_odd
from flows.folding import fold
from flows.plan_data import RunData, data_of, measured_for, model_folder
from flows.plan_words import Answer
from specs.base import Language, Strict
from specs.errors import InputError
from specs.parameters import LoraParameters, TrainingConfiguration
from specs.stages import Progress
from tasks.memory.architecture import architecture_of
from tasks.planning.architectures import sound
from tasks.planning.machine import Machine, machine_named, parse_cards
from tasks.planning.plans import Limits
from tasks.planning.search import find_plans
from tasks.planning.weighing import positions_of
from tasks.planning.workload import Workload

T = TypeVar("T", bound=Strict)
OPTION = {"methods": "method", "optimizers": "optimizer", "limits": "length", "effective_batch": "effective-batch"}
"""Fields whose option has another name."""


def refuse_contradictions(
    data: str | None, samples: int | None, hours: float | None, money: float | None, price: float | None
) -> None:
    """Options that would have no effect beside the others."""
    if data is not None and samples is not None:
        raise InputError("--samples and --data both say how many samples there are", "leave --samples out")
    if (hours is not None or money is not None) and data is None and samples is None:
        raise InputError("--hours and --money need the number of samples", "give --data RUN, or --samples N")
    if money is not None and price is None:
        raise InputError("--money needs the price of a card", "give --price, of one card for one hour")


def machine_asked(gpu: str | None, nodes: int, price: float | None, sizes: dict[str, float | None]) -> Machine:
    """The cards that are asked for, this machine's where none are. Raises `InputError` for sizes that are none."""
    refuse_odd({f"--{name.replace('_', '-')}": value for name, value in sizes.items()} | {"--price": price or None})
    if sizes.get("memory_gb") is not None and gpu is None:
        raise InputError("--memory-gb is of a card that --gpu names", "give --gpu NAME too, or leave --memory-gb out")
    name, count = parse_cards(gpu) if gpu is not None else (None, 1)
    return machine_named(name, count, nodes=nodes, price_per_card_hour=price, **sizes)


def workload_of(
    run: RunData | None,
    samples: int | None,
    limits: tuple[int, ...],
    effective_batch: int | None,
    epochs: int | None,
    attention: str,
) -> Workload:
    """The samples of the run, and its batch, epochs and bound on the steps where nobody gives others."""
    training = run.training if run else None
    return checked(
        Workload,
        lengths=run.lengths if run else (),
        evaluation_lengths=run.evaluation_lengths if run else (),
        samples=samples,
        limits=limits,
        effective_batch=effective_batch or (training.effective_batch if training else 8),
        epochs=epochs or (training.epochs if training else 1),
        max_steps=training.max_steps if training and epochs is None else None,
        attention=attention,
    )


def limits_of(
    training: TrainingConfiguration | None,
    methods: list[str] | None,
    optimizers: list[str] | None,
    adapters: tuple[int | None, str | None],
    free_gb: float | None,
    bounds: dict[str, float | bool | None],
) -> Limits:
    """What may be proposed; optimizer and adapters (rank, targets) are those of the run where nobody gives others."""
    refuse_odd({"--free-gb": free_gb} | {f"--{name}": bounds.get(name) for name in ("hours", "money")})
    return checked(
        Limits,
        **({"methods": tuple(methods)} if methods else {}),
        **optimizers_of(optimizers, training),
        **adapters_of(*adapters, training),
        **bounds,
        free_bytes=round(free_gb * 2**30) if free_gb is not None else None,
    )


def optimizers_of(asked: list[str] | None, training: TrainingConfiguration | None) -> dict[str, tuple[str, ...]]:
    """Those asked for, else that of the run and the usual ones."""
    if asked:
        return {"optimizers": tuple(asked)}
    own = [training.optimizer] if training else []
    return {"optimizers": tuple(dict.fromkeys([*own, *Limits().optimizers]))}


def adapters_of(rank: int | None, targets: str | None, training: TrainingConfiguration | None) -> dict[str, Any]:
    """Rank and targets asked for, else those of the run."""
    lora = training.lora if training else LoraParameters()
    named = targets.split(",") if targets and targets != "all-linear" else targets or lora.targets
    shapes = {"rank": rank or lora.rank, "targets": named if isinstance(named, str) else tuple(named)}
    return {**shapes, "dropout": lora.dropout}


class Base(NamedTuple):
    """A model as it was asked for, and where its configuration is."""

    name: str
    place: str | Path


def run_data(data: str | None, model: str | None, lang: str | None) -> tuple[RunData | None, Base, Language]:
    """The run that is named, the model to plan for, and the language to say it in."""
    language = asked(lang)
    if data is None:
        if model is None:
            raise InputError("no model is named", "give --model NAME, or --data RUN for the model of a run")
        return None, Base(model, model), language or of_project()
    workspace, ledger = look_for(data)
    run = data_of(workspace, fold(ledger.events(workspace.run)))
    base = Base(model, model) if model else Base(run.base_model, model_folder(workspace))
    return run, base, language or run.language


def checked(kind: type[T], **values: Any) -> T:
    """A document from options; what is not known is said by the option's name."""
    try:
        return kind(**values)
    except ValidationError as error:
        wrong = "; ".join(f"--{OPTION.get(str(e['loc'][0]), str(e['loc'][0]))}: {e['msg']}" for e in error.errors())
        raise InputError(wrong, "gatewright plan --help lists the values") from None


def searched(
    base: Base,
    machine: Machine,
    workload: Workload,
    limits: Limits,
    run: RunData | None,
    model: str | None,
    progress: Progress,
) -> Answer:
    """The search, with what the run's stress test measured where it is of this model (`model`: another) and device."""
    measured, unused = measured_for(run, model, machine.device) if run else (None, None)
    architecture = sound(architecture_of(base.place), base.name)
    positions, lengths = positions_of(architecture), workload.limits
    if lengths and positions and min(lengths) > positions:
        raise InputError(f"--length {min(lengths)}: the model was made for {positions} tokens", "give a shorter one")
    found = find_plans(base.name, architecture, machine, workload, limits, measured, progress)
    return Answer(found, machine, workload, limits, positions, run, measured, unused)
