"""Expected times: the counted work of a stage, at rates that earlier work on this device gave."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from agents import work as counted
from agents.contract import ProposerContext
from agents.facts import DataFacts
from agents.operations import products_of
from agents.rates import LEAST_SPREAD, WITHIN, Estimate, Timed, idle_seconds, predict
from agents.reason_texts import text
from specs.costs import STAGE_SECONDS, Took
from specs.parameters import TrainingConfiguration
from specs.proposals import Expectation
from specs.results import BUSY

SAME, KIN, STRANGER = 0.15, 0.35, 0.9
"""Spread of what other work says of this: in the same setting, of the same model, of another one."""
OWN = 0.08
"""Spread of what the same number of an earlier run of the project says: its work was counted by the same rule."""
OLDER = 0.25
"""By how much of itself the spread grows with each newer piece of the same kind."""
SECONDS = {"s": 1.0, "h": 3600.0}


def expected_time(
    context: ProposerContext, stage: str, metric: str, unit: str, work: Mapping[str, float], setting: str = ""
) -> Expectation | None:
    """How long some work of a stage takes on an idle machine, with what holds four cases of five; null where no rate
    is known. `setting` is that of the training, as `Took` has it."""
    thumb = counted.seconds_of_units(context)
    if thumb is None:
        return None
    kind = "stage" if metric == STAGE_SECONDS else "steps"
    own = _own(context, stage, metric, SECONDS[unit])
    others = _others(context, kind, stage, setting)
    rule = predict(work, [], thumb)
    found = predict(work, [*own, *others], thumb)
    if rule is None or found is None:
        return None
    key = "x_rates" if own or _near(context, kind, stage, setting) else "x_rates_far" if others else "x_thumb"
    return _expectation(context, metric, unit, work, (rule, found), key, len(own) + len(others))


def _expectation(
    context: ProposerContext,
    metric: str,
    unit: str,
    work: Mapping[str, float],
    estimates: tuple[Estimate, Estimate],
    key: str,
    pieces: int,
) -> Expectation:
    rule, found = estimates
    per = SECONDS[unit]
    why = text(context.spec.language, key, pieces=pieces)
    if pieces and all(c.others_cpu_share is not None and c.others_cpu_share >= BUSY for c in context.costs):
        why += text(context.spec.language, "x_always_busy")
    model = products_of(context.base_model)
    if "operations" in work and model is not None and model.lacks:
        why += text(context.spec.language, f"x_{model.lacks}")
    return Expectation(
        metric=metric,
        value=_rounded(found.seconds / per),
        low=_rounded(found.low / per, 2),
        high=_rounded(found.high / per, 2),
        unit=unit,
        why=why,
        by_rule=_rounded(rule.seconds / per) if pieces else None,
        work={name: float(f"{value:.6g}") for name, value in work.items()},
    )


def setting_of(training: Mapping[str, Any] | TrainingConfiguration) -> str:
    """What of a training configuration decides how fast its steps are, lengths and batches aside."""
    t = training if isinstance(training, TrainingConfiguration) else TrainingConfiguration.model_validate(training)
    recompute = "recompute" if t.activation_checkpointing else "keep"
    return f"{t.method} {t.weights} {t.compute} {t.attention} {recompute}, {t.threads} threads, {t.ranks} ranks"


def _own(context: ProposerContext, stage: str, metric: str, per: float) -> list[Timed]:
    """What earlier runs of the project took for this number, the newest first, without what load added."""
    spec = context.spec
    known = [s for s in spec.graph.ancestors(stage) if s in context.evidence]
    found: list[Timed] = []
    for entry in reversed(context.history):
        same = (entry.get("stage"), entry.get("metric")) == (stage, metric) and entry.get("known", []) == known
        model = (entry.get("base_model"), entry.get("method")) == (spec.base_model, spec.method)
        if not (same and (model or stage == "data") and entry.get("work") and entry.get("took") and entry["actual"]):
            continue
        took = Took.model_validate(entry["took"])
        idle, spread = idle_seconds(took, context.costs)
        seconds = float(entry["actual"]) * per * idle / took.wall_s
        found.append(Timed(entry["work"], seconds, (OWN + spread) * (1 + OLDER * len(found))))
    return found


def _others(context: ProposerContext, kind: str, stage: str, setting: str) -> list[Timed]:
    """What other work on this device took, the newest first."""
    found: list[Timed] = []
    for took in _of_kind(context, kind, stage):
        idle, load = idle_seconds(took, context.costs)
        near = SAME if _is_near(context, took, setting) else KIN if took.model == context.model_sha256 else STRANGER
        found.append(Timed(took.work, idle, (near + load) * (1 + OLDER * len(found))))
    return found


def _of_kind(context: ProposerContext, kind: str, stage: str) -> list[Took]:
    return [t for t in context.costs if t.kind == kind and (kind == "steps" or t.stage == stage)]


def _near(context: ProposerContext, kind: str, stage: str, setting: str) -> bool:
    return any(_is_near(context, took, setting) for took in _of_kind(context, kind, stage))


def _is_near(context: ProposerContext, took: Took, setting: str) -> bool:
    return took.model in ("", context.model_sha256) and (took.setting == setting or took.kind == "stage")


def training_times(
    context: ProposerContext, stage: str, training: TrainingConfiguration, facts: DataFacts, samples: int
) -> list[Expectation]:
    """Step time and hours of a stage that trains `samples` samples; what cannot be counted is left out."""
    if stage == "train" and (measured := _measured(context)) is not None:
        return [measured]
    model, mean = products_of(context.base_model), counted.mean_tokens(facts)
    if model is None or mean is None:
        return []
    setting = setting_of(training)
    whole = counted.all_steps(model, training, mean, samples)
    asked: list[tuple[str, str, Mapping[str, float]]] = []
    if stage == "dry_run":
        asked = [("seconds_per_step", "s", counted.mean_step(model, training, mean))]
    elif stage == "stress_test":
        asked = [("seconds_per_step", "s", counted.worst_step(model, training)), ("planned_hours", "h", whole)]
    elif stage == "train":
        asked = [("training_hours", "h", whole)]
    found = [expected_time(context, stage, metric, unit, work, setting) for metric, unit, work in asked]
    return [e for e in found if e is not None]


def _measured(context: ProposerContext) -> Expectation | None:
    """The hours that the stress test measured for its plan, less what other programs added; null before it ran."""
    evidence = context.evidence.get("stress_test")
    metric = evidence.metrics.get("planned_hours") if evidence else None
    if evidence is None or metric is None or metric.value is None:
        return None
    why = text(context.spec.language, "x_measured_time")
    steps = [t for t in evidence.took if t.kind == "steps"]
    share, spread = 1.0, SAME
    if steps:
        idle, spreads = zip(*(idle_seconds(t, [*steps, *context.costs]) for t in steps), strict=True)
        share, spread = sum(idle) / sum(t.wall_s for t in steps), SAME + max(spreads)
    value, factor = metric.value * share, math.exp(WITHIN * spread)
    if share < 1 - LEAST_SPREAD:
        why += text(context.spec.language, "x_less_load", share=round(100 * (1 - share)))
    return Expectation(
        metric="training_hours",
        value=value,
        low=_rounded(value / factor, 2),
        high=_rounded(value * factor, 2),
        unit="h",
        why=why,
    )


def whole_stage(
    context: ProposerContext, stage: str, parameters: Mapping[str, Any], facts: DataFacts, samples: int
) -> list[Expectation]:
    """How long the whole stage takes, start-up included."""
    work = counted.stage_work(context, stage, parameters, facts, samples)
    found = expected_time(context, stage, STAGE_SECONDS, "s", work) if work else None
    return [] if found is None else [found]


def _rounded(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits}g}")
