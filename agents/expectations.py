"""What a stage should bring, in numbers, from its proposed parameters and what is known before it runs."""

from __future__ import annotations

import math
from typing import Any

from agents.contract import MemoryFunction, ProposerContext
from agents.facts import data_facts, has_sensor_logs, source_rows
from agents.reason_texts import text
from agents.siblings import dry_run_model
from agents.times import training_times, whole_stage
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
    times of a run that had the processors for itself before those of one that shared them. A time that follows from
    what work took on this machine is not corrected once more.
    """
    if expectation.work and expectation.by_rule is not None:
        return expectation
    spec, rule = context.spec, expectation.value
    known = [s for s in spec.graph.ancestors(stage) if s in context.evidence]
    measured = [
        entry
        for entry in context.history
        if (entry.get("stage"), entry.get("metric")) == (stage, expectation.metric)
        and entry.get("actual") is not None
        and entry.get("known", []) == known
        and not (expectation.unit in _TIMES and entry.get("elsewhere"))
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
    corrected = {"value": value, "why": why, "by_rule": rule, "low": None, "high": None}
    return expectation.model_copy(update=corrected)


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
    found: list[Expectation] = []
    if read is not None or not has_sensor_logs(context):
        key = "x_rows" if read is None else "x_rows_read"
        found.append(_expect("rows_total", rows if read is None else read, "rows", text(language, key)))
    kept = text(language, "x_kept" if read is None else "x_kept_read")
    return [
        *found,
        _expect("samples_train", samples - evaluation, "samples", kept),
        _expect("samples_eval", evaluation, "samples", text(language, "x_share")),
        *whole_stage(context, "data", parameters, facts, samples),
    ]


def _training(
    context: ProposerContext, stage: str, parameters: dict[str, Any], memory: MemoryFunction | None
) -> list[Expectation]:
    language = context.spec.language
    training = TrainingConfiguration.model_validate(parameters["training"])
    facts = data_facts(context)
    samples = facts.per_epoch(training)
    plan = planned_steps(samples if stage == "dry_run" else _part(context, samples), training)
    same_model = stage != "dry_run" or dry_run_model(context.spec) == context.spec.base_model
    found = []
    if plan.steps:
        found.append(_expect("steps_taken", plan.steps, "steps", text(language, "x_steps")))
        if same_model:
            found += training_times(context, stage, training, facts, plan.samples_seen)
            of_stage = samples if stage == "dry_run" else plan.samples_seen
            found += whole_stage(context, stage, parameters, facts, of_stage)
    if memory is not None and same_model:
        found.append(_expect("peak_bytes", memory(training).peak_bytes, "bytes", text(language, "x_memory")))
    if stage == "stress_test":
        return [e for e in found if e.metric != "steps_taken"]
    return found


def _evaluate(context: ProposerContext, parameters: dict[str, Any]) -> list[Expectation]:
    language = context.spec.language
    found = []
    facts = data_facts(context)
    if facts.evaluation:
        key, used = "x_counted" if facts.counted else "x_share", _part(context, facts.evaluation)
        found.append(_expect("samples_evaluated", used, "samples", text(language, key)))
        found += whole_stage(context, "evaluate", parameters, facts, used)
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
