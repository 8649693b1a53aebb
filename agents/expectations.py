"""What a stage should bring, in numbers, from its proposed parameters and what is known before it runs."""

from __future__ import annotations

import math
from typing import Any

from agents.contract import MemoryFunction, ProposerContext
from agents.facts import (
    SECONDS_PER_MICRO_BATCH,
    DataFacts,
    data_facts,
    has_sensor_logs,
    parameter_count,
    seconds_per_token,
    source_rows,
)
from agents.reason_texts import text
from agents.siblings import dry_run_model
from agents.training_rules import planned_steps
from specs.parameters import TrainingConfiguration
from specs.proposals import Expectation
from specs.results import BUSY


def expectations(
    context: ProposerContext, stage: str, parameters: dict[str, Any], memory: MemoryFunction | None
) -> list[Expectation]:
    """Expected numbers of one stage; what cannot be predicted is left out.

    Earlier runs correct the rules, and never a number that project.yaml states: an aim, or what a person expects.
    """
    if stage in context.spec.added_stages:
        return _added(context, stage)
    found: list[Expectation] = []
    if stage == "data":
        found = _data(context, parameters)
    elif stage in ("dry_run", "stress_test", "train"):
        found = _training(context, stage, parameters, memory)
    elif stage == "evaluate":
        found = _evaluate(context, parameters)
    found = [_remembered(context, stage, expectation) for expectation in found]
    return [*found, *_aim(context)] if stage == "evaluate" else found


def _remembered(context: ProposerContext, stage: str, expectation: Expectation) -> Expectation:
    """The rule's number, corrected by how far the same rule was off in the newest earlier run that measured this.

    Only an expectation made with as much known is compared; times and memory only of the same model and method, and
    times of a run that had the processors for itself before those of one that shared them.
    """
    spec, rule = context.spec, expectation.value
    known = [s for s in spec.graph.ancestors(stage) if s in context.evidence]
    measured = [
        entry
        for entry in context.history
        if (entry.get("stage"), entry.get("metric")) == (stage, expectation.metric)
        and entry.get("actual") is not None
        and entry.get("known", []) == known
        and (
            expectation.unit not in _OF_THE_MODEL
            or (entry.get("base_model"), entry.get("method")) == (spec.base_model, spec.method)
        )
    ]
    if not measured:
        return expectation
    quiet = [e for e in measured if expectation.unit not in _TIMES or (e.get("others_cpu_share") or 0) < BUSY]
    entry = (quiet or measured)[-1]
    was, actual = float(entry.get("by_rule") or 0), float(entry["actual"])
    value = actual if not was else rule * actual / was
    value = float(round(value)) if expectation.unit in _WHOLE else value
    why = text(spec.language, "x_history" if quiet else "x_history_busy")
    return expectation.model_copy(update={"value": value, "why": why, "by_rule": rule})


def _added(context: ProposerContext, stage: str) -> list[Expectation]:
    """What project.yaml expects of a stage that it adds."""
    expected, why = context.spec.added_stages[stage].expected, text(context.spec.language, "x_written")
    units = {d.name: d.unit for d in context.spec.metrics_of(stage)}
    return [_expect(metric, value, units[metric], why) for metric, value in expected.items()]


_TIMES = frozenset({"s", "h"})
_OF_THE_MODEL = _TIMES | {"bytes"}
_WHOLE = frozenset({"rows", "samples", "steps", "bytes"})


def _data(context: ProposerContext, parameters: dict[str, Any]) -> list[Expectation]:
    language = context.spec.language
    rows = source_rows(context)
    if rows == 0:
        return []
    read = context.survey.get("rows") if context.survey.get("complete") else None
    facts = data_facts(context)
    samples = facts.train + facts.evaluation
    evaluation = min(samples, max(1, round(samples * float(parameters["eval_share"]))))
    found = []
    if read is not None or not has_sensor_logs(context):
        key = "x_rows" if read is None else "x_rows_read"
        found.append(_expect("rows_total", rows if read is None else read, "rows", text(language, key)))
    kept = text(language, "x_kept" if read is None else "x_kept_read")
    return [
        *found,
        _expect("samples_train", samples - evaluation, "samples", kept),
        _expect("samples_eval", evaluation, "samples", text(language, "x_share")),
    ]


def _training(
    context: ProposerContext, stage: str, parameters: dict[str, Any], memory: MemoryFunction | None
) -> list[Expectation]:
    language = context.spec.language
    training = TrainingConfiguration.model_validate(parameters["training"])
    facts = data_facts(context)
    samples = facts.per_epoch(training)
    plan = planned_steps(samples if stage == "dry_run" else _part(context, samples), training)
    found = []
    if plan.steps:
        found.append(_expect("steps_taken", plan.steps, "steps", text(language, "x_steps")))
        found += _time(context, stage, training, facts, plan.samples_seen)
    same_model = stage != "dry_run" or dry_run_model(context.spec) == context.spec.base_model
    if memory is not None and same_model:
        found.append(_expect("peak_bytes", memory(training).peak_bytes, "bytes", text(language, "x_memory")))
    if stage == "stress_test":
        return [e for e in found if e.metric != "steps_taken"]
    return found


def _time(
    context: ProposerContext, stage: str, training: TrainingConfiguration, facts: DataFacts, samples: int
) -> list[Expectation]:
    """Step time and hours, from the stress test where it has measured, else from operations per token."""
    language = context.spec.language
    measured = _measured(context, "planned_hours")
    if stage == "train" and measured is not None:
        return [_expect("training_hours", measured, "h", text(language, "x_measured_time"))]
    per_token = seconds_per_token(parameter_count(context.base_model), context.device)
    mean = facts.mean or (facts.longest * 0.6 if facts.longest else None)
    if per_token is None or mean is None:
        return []
    passes = math.ceil(samples / training.micro_batch)
    hours = _rounded((samples * mean * per_token + passes * SECONDS_PER_MICRO_BATCH) / 3600)
    why = text(language, "x_time")
    if stage == "train":
        return [_expect("training_hours", hours, "h", why)]
    tokens = training.effective_batch * (training.max_length if stage == "stress_test" else mean)
    overhead = training.gradient_accumulation * SECONDS_PER_MICRO_BATCH
    step = _expect("seconds_per_step", _rounded(tokens * per_token + overhead), "s", text(language, "x_step_time"))
    return [step] if stage == "dry_run" else [step, _expect("planned_hours", hours, "h", why)]


def _measured(context: ProposerContext, name: str) -> float | None:
    evidence = context.evidence.get("stress_test")
    metric = evidence.metrics.get(name) if evidence else None
    return metric.value if metric else None


def _evaluate(context: ProposerContext, parameters: dict[str, Any]) -> list[Expectation]:
    language = context.spec.language
    found = []
    facts = data_facts(context)
    if facts.evaluation:
        key = "x_counted" if facts.counted else "x_share"
        found.append(_expect("samples_evaluated", _part(context, facts.evaluation), "samples", text(language, key)))
    return found


def _aim(context: ProposerContext) -> list[Expectation]:
    """What project.yaml wants to be reached."""
    aim = context.spec.objective
    return [] if aim is None else [_expect(aim.metric, aim.at_least, "share", text(context.spec.language, "x_goal"))]


def _part(context: ProposerContext, samples: int) -> int:
    """How many of the samples are used: all, or the part of a rehearsal."""
    share = context.spec.rehearsal
    return samples if share is None else math.ceil(share * samples)


def _expect(metric: str, value: float, unit: str, why: str) -> Expectation:
    return Expectation(metric=metric, value=value, unit=unit, why=why)


def _rounded(value: float) -> float:
    """Two significant digits: a rule of thumb claims no more."""
    return float(f"{value:.2g}")
