"""The route before the card (inference, adapters, continued pre-training, all weights) and the smallest model. Pure.

Nothing here knows how good a model is. What decides is what has been measured: whether an adapter run of this project
reached its objective. Before one has been run, the smallest model and the lightest route come first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from specs.base import Strict
from specs.errors import ModelError
from specs.hardware import find_model, models
from specs.parameters import Method

Route = Literal["inference", "qlora", "lora", "continued", "full"]

FEW_SAMPLES = 100
"""Below this many training samples a prompt with examples is tried first: too few to learn from and to hold out."""
PLAIN_TEXT_SHARE = 0.5
"""Of an epoch: where more is plain text, the training is continued pre-training."""
SMALLEST = 1.0e9
"""Parameters of the smallest model that is proposed to begin with; smaller ones are for dry runs."""
LARGE = 30e9
"""Parameters from which on a first adapter run on a smaller model is asked for."""
_SIZE = re.compile(r"(?<![A-Za-z0-9.])\d+(?:\.\d+)?[bBmM](?![A-Za-z0-9])")


class Past(Strict):
    """A finished run of the project. `reached` is null where it set no objective, or evaluation failed to measure."""

    run: str
    model: str
    method: Method
    reached: bool | None


class Situation(Strict):
    """What is known before a card is chosen."""

    base_model: str
    method: Method
    samples: int | None = Field(None, description="training samples; null: not known")
    plain_text_share: float = 0.0
    parameters: int | None = Field(None, description="of the base model; null: not known")
    usable_bytes: int | None = Field(None, description="of the card that is there or named; null: none")
    past: tuple[Past, ...] = ()

    def with_parameters(self, model: str, parameters: int | None) -> Situation:
        """The same where the account of the base model has counted them."""
        if self.parameters is not None or model != self.base_model:
            return self
        return self.model_copy(update={"parameters": parameters})


class Reason(Strict):
    """One sentence by its key in the texts, with what is filled in."""

    key: str
    values: dict[str, Any] = Field(default_factory=dict)


class Advice(Strict):
    """The route, the model to take, why, and what to be warned of."""

    route: Route
    method: Method
    model: str
    reasons: list[Reason]
    warnings: list[Reason]


def advise(situation: Situation) -> Advice:
    """Route and model with their reasons."""
    model, why = smallest_model(situation)
    size = parameters_of(model) or (situation.parameters if model == situation.base_model else None)
    route, reasons = _route(situation, size)
    adapters = [p for p in situation.past if p.method != "full"]
    warnings = []
    if situation.method == "full" and not adapters:
        warnings.append(Reason(key="warn.full"))
    method: Method = {"qlora": "qlora", "full": "full"}.get(route, "lora")  # type: ignore[assignment]
    if route == "continued":
        method = situation.method
    advice = Advice(route=route, method=method, model=model, reasons=[*reasons, *why], warnings=warnings)
    return counted(advice, situation, size)


def counted(advice: Advice, situation: Situation, parameters: int | None) -> Advice:
    """The same with the warning of a large model before any adapter run of the project, be it the one that the project
    names or the advised one. `parameters` are of the advised one: the account knows them of models in no catalog."""
    tried = any(p.method != "full" for p in situation.past)
    sizes = {situation.base_model: situation.parameters or 0, advice.model: parameters or 0}
    model = max(sizes, key=lambda name: sizes[name])
    if tried or sizes[model] < LARGE or any(w.key == "warn.large" for w in advice.warnings):
        return advice
    return advice.model_copy(
        update={"warnings": [*advice.warnings, Reason(key="warn.large", values=_size(model, sizes[model]))]}
    )


def _route(s: Situation, size: int | None) -> tuple[Route, list[Reason]]:
    if s.samples is not None and s.samples < FEW_SAMPLES:
        return "inference", [Reason(key="route.inference", values={"samples": s.samples, "few": FEW_SAMPLES})]
    if s.plain_text_share > PLAIN_TEXT_SHARE:
        return "continued", [Reason(key="route.continued", values={"share": f"{s.plain_text_share:.0%}"})]
    missed = [p for p in s.past if p.method != "full" and p.reached is False and p.model == s.base_model]
    if s.method == "full" and missed:
        return "full", [Reason(key="route.full", values={"run": missed[-1].run})]
    if s.method == "qlora":
        return "qlora", [Reason(key="route.qlora_asked")]
    if s.usable_bytes is not None and size is not None and 2 * size > 0.8 * s.usable_bytes:
        sizes = {"weights": f"{2 * size / 2**30:.1f}", "usable": f"{s.usable_bytes / 2**30:.1f}"}
        return "qlora", [Reason(key="route.qlora_memory", values=sizes)]
    if s.method == "full":
        return "lora", [Reason(key="route.lora_first")]
    return "lora", [Reason(key="route.lora")]


def as_qlora(advice: Advice) -> Advice:
    """The same where no card that was looked at holds the weights in 16 bits."""
    others = [r for r in advice.reasons if not r.key.startswith("route.")]
    reasons = [Reason(key="route.qlora_cards"), *others]
    return advice.model_copy(update={"route": "qlora", "method": "qlora", "reasons": reasons})


def smallest_model(s: Situation) -> tuple[str, list[Reason]]:
    """The smallest model of the family that has not been shown to be too small, and why.

    A model that reached the objective is enough. One that missed it is too small: the next larger is tried.
    """
    family = family_of(s.base_model)
    reached = [p for p in s.past if p.reached]
    if reached:
        model = min((p.model for p in reached), key=lambda m: parameters_of(m) or float("inf"))
        run = next(p.run for p in reached if p.model == model)
        return model, [Reason(key="model.reached", values={"model": model, "run": run})]
    if len(family) < 2:
        return s.base_model, [Reason(key="model.only", values={"model": s.base_model})]
    missed = [p for p in s.past if p.reached is False]
    if missed:
        worst = max(parameters_of(p.model) or 0 for p in missed)
        larger = [m for m, size in family if size > worst]
        values = {"model": larger[0] if larger else family[-1][0], "run": missed[-1].run}
        return values["model"], [Reason(key="model.missed" if larger else "model.largest", values=values)]
    first = next((m for m, size in family if size >= SMALLEST), family[-1][0])
    return first, [Reason(key="model.first", values={"model": first, "base": s.base_model})]


def family_of(model: str) -> list[tuple[str, int]]:
    """The models of the catalog whose id differs in its size alone, with their parameters, the smallest first."""
    try:
        known = find_model(model)
    except ModelError:
        return []
    key = _SIZE.sub("#", known.id)
    same = [(m.id, m.params_total) for m in models() if _SIZE.sub("#", m.id) == key and m.params_total]
    return sorted(((name, size) for name, size in same if size), key=lambda pair: (pair[1], pair[0]))


def parameters_of(model: str) -> int | None:
    """Of a model of the catalog; null for others."""
    try:
        return find_model(model).params_total
    except ModelError:
        return None


def _size(model: str, parameters: int) -> dict[str, str]:
    """A model and its size in both languages: billions, and hundreds of millions."""
    return {"model": model, "billions": f"{parameters / 1e9:.1f}", "yi": f"{parameters / 1e8:.0f}"}


def missing_facts(s: Situation) -> Sequence[str]:
    """Names of what was not known, so that nothing is decided in silence."""
    unknown = {"samples": s.samples, "parameters": s.parameters}
    return [name for name, value in unknown.items() if value is None]
