"""Advice for a project: the order is route, peak, card and count, trial, delivery."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field

from flows.advice_data import ProjectFacts, architecture_for, facts_of, plain_text_share
from flows.plan_data import RunData, measured_for
from specs.base import Strict
from specs.errors import InputError
from specs.parameters import Method
from specs.stages import Progress
from tasks.advising.cards import Row, Survey, choose, survey
from tasks.advising.costs import LOCAL_HOURS, Prices, Use
from tasks.advising.route import Advice, Situation, advise, as_qlora, counted, missing_facts, parameters_of
from tasks.memory.devices import Device, this_device
from tasks.planning.measured import Measured
from tasks.planning.plans import Limits
from tasks.planning.workload import Workload

if TYPE_CHECKING:
    from specs.loading import LoadedProject

DEFAULT_LENGTH = 2048
"""Tokens, where neither data nor an option says how long samples are."""


class Asked(Strict):
    """What the person gave beside the project."""

    model: str | None = None
    cards: tuple[str, ...] = ()
    most: int = 8
    samples: int | None = None
    length: int | None = None
    epochs: int = 1
    effective_batch: int = 8
    prices: dict[str, Prices] = Field(default_factory=dict)
    use: Use = Field(default_factory=Use)


class Document(Strict):
    """The whole advice as one document."""

    project: str
    advice: Advice
    survey: Survey
    chosen: Row | None
    here: str | None = Field(description="the card of this machine, or the one that the spec names")
    hours_limit: float = Field(description="a run on a card at hand may take this long: budget.hours, else 12")
    use: Use
    samples: int | None
    longest: int
    lengths_of_run: str | None
    measured_run: str | None = Field(None, description="the run whose stress test measured; its card's row takes it")
    measured_on: str | None = Field(None, description="the card or processor of that stress test")
    unknown: list[str]


@dataclass
class Answer:
    """The document, and the runs that could not be read."""

    document: Document
    unread: list[str]


def answer(loaded: LoadedProject, asked: Asked, progress: Progress) -> Answer:
    """Advice for a project. Raises `ModelError` for a model that is in no catalog and not to be had."""
    spec, facts = loaded.spec, facts_of(loaded.folder)
    named = None if spec.hardware == "auto" else this_device(spec.hardware)
    here = named or _gpu_here()
    workload = _workload(asked, facts)
    situation = Situation(
        base_model=asked.model or spec.base_model,
        method=spec.method,
        samples=workload.count,
        plain_text_share=plain_text_share(spec),
        parameters=parameters_of(asked.model or spec.base_model),
        usable_bytes=here.usable_bytes if here else None,
        past=facts.past,
    )
    advice = advise(situation)
    if asked.model is not None:
        advice = advice.model_copy(update={"model": asked.model, "reasons": _without_model(advice)})
    architecture = architecture_for(advice.model, loaded, progress)
    used = asked.use.model_copy(update={"transfer_bytes": _transferred(advice.model)})

    def surveyed(method: Method) -> Survey:
        return survey(
            advice.model,
            architecture,
            workload,
            _limits(method, facts.data),
            named=asked.cards,
            most=asked.most,
            prices=asked.prices,
            use=used,
            measured=partial(_measured, facts.data, advice.model),
            progress=progress,
        )

    found = surveyed(advice.method)
    if advice.route == "lora" and not any(row.fits for row in found.rows):
        smaller = surveyed("qlora")
        if any(row.fits for row in smaller.rows):
            found, advice = smaller, as_qlora(advice)
    advice = counted(advice, situation, found.parameters)
    limit = spec.budget.hours or LOCAL_HOURS
    at_hand = here.name if here else None
    document = Document(
        project=spec.project,
        advice=advice,
        survey=found,
        chosen=choose(found, at_hand, limit),
        here=at_hand,
        hours_limit=limit,
        use=used.carrying(2 * (found.parameters or 0)),
        samples=workload.count,
        longest=max(workload.length_limits(None)),
        lengths_of_run=facts.data_run if workload.lengths else None,
        measured_run=facts.measured_run,
        measured_on=facts.data.measured_on[1] if facts.data and facts.measured_run else None,
        unknown=list(missing_facts(situation.with_parameters(advice.model, found.parameters))),
    )
    return Answer(document, facts.unread)


def _limits(method: Method, data: RunData | None) -> Limits:
    """As the project trains, where a run of it was configured with that method: its adapters, its optimizer first."""
    training = data.training if data else None
    usual = Limits(methods=(method,), offload=False)
    if training is None or training.method != method:
        return usual
    targets = training.lora.targets
    own = {
        "rank": training.lora.rank,
        "dropout": training.lora.dropout,
        "targets": targets if isinstance(targets, str) else tuple(targets),
        "optimizers": tuple(dict.fromkeys([training.optimizer, *usual.optimizers])),
    }
    return usual.model_copy(update=own)


def _measured(data: RunData | None, model: str, device: Device) -> Measured | None:
    """What the project's stress test measured of this model on this device."""
    return measured_for(data, model, device)[0] if data else None


def _workload(asked: Asked, facts: ProjectFacts) -> Workload:
    """Lengths of the newest data, unless a length or a number of samples is given."""
    if asked.samples is None and asked.length is None and facts.data is not None and facts.data.lengths:
        batch = asked.effective_batch
        if facts.data.training is not None:
            batch = facts.data.training.effective_batch
        lengths = facts.data.lengths
        return Workload(
            lengths=lengths,
            evaluation_lengths=facts.data.evaluation_lengths,
            limits=(max(lengths),),
            effective_batch=batch,
            epochs=asked.epochs,
        )
    length = asked.length or DEFAULT_LENGTH
    return Workload(samples=asked.samples, limits=(length,), effective_batch=asked.effective_batch, epochs=asked.epochs)


def _without_model(advice: Advice) -> list:  # type: ignore[type-arg]
    return [r for r in advice.reasons if not r.key.startswith("model.")]


def _transferred(model: str) -> int:
    """Model up; adapters and data are small beside it. 0 where its size is not known."""
    return 2 * (parameters_of(model) or 0)


def _gpu_here() -> Device | None:
    """The GPU of this machine; null where there is none."""
    try:
        device = this_device()
    except InputError:
        return None
    return device if device.kind == "cuda" else None
