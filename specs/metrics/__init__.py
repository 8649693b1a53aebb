"""The default metrics of the built-in stages: unit, criterion, and how each is recomputed; a module for each stage.

`docs/metrics.md` is made from these tables and tested against them.
"""

from __future__ import annotations

from collections.abc import Iterable

from specs.criteria import Criterion
from specs.metrics import data, dry_run, evaluate, rewritten, stress_test, train
from specs.metrics.definition import MetricDefinition

STAGES: tuple[str, ...] = ("data", "dry_run", "stress_test", "train", "evaluate")

_TABLES: dict[str, tuple[MetricDefinition, ...]] = {
    "data": data.DEFINITIONS,
    "dry_run": dry_run.DEFINITIONS,
    "stress_test": stress_test.DEFINITIONS,
    "train": train.DEFINITIONS,
    "evaluate": evaluate.DEFINITIONS,
}

DEFINITIONS: tuple[MetricDefinition, ...] = tuple(d for stage in STAGES for d in _TABLES[stage])

OF_REWRITTEN: tuple[MetricDefinition, ...] = rewritten.DEFINITIONS
"""What is measured of every added stage that rewrites samples, beside the metrics that it declares."""

__all__ = [
    "DEFINITIONS",
    "OF_REWRITTEN",
    "STAGES",
    "MetricDefinition",
    "criteria_of",
    "default_criteria",
    "definitions",
]


def definitions(stage: str) -> list[MetricDefinition]:
    """The metrics of one stage, in the order in which they are reported."""
    return list(_TABLES.get(stage, ()))


def default_criteria(stage: str) -> list[Criterion]:
    """The criteria a stage has when the spec says nothing."""
    return criteria_of(definitions(stage))


def criteria_of(known: Iterable[MetricDefinition]) -> list[Criterion]:
    """The criteria that stand in definitions."""
    return [
        Criterion(metric=d.name, op=d.op, bound=d.bound, blocking=d.blocking, where_applicable=bool(d.needs))
        for d in known
        if d.op is not None and d.bound is not None
    ]
