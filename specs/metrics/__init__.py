"""The default metrics of the built-in stages: unit, criterion, and how each is recomputed; a module for each stage.

`docs/metrics.md` is made from these tables and tested against them.
"""

from __future__ import annotations

from specs.criteria import Criterion
from specs.metrics import data, dry_run, evaluate, stress_test, train
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

__all__ = ["DEFINITIONS", "STAGES", "MetricDefinition", "default_criteria", "definitions"]


def definitions(stage: str) -> list[MetricDefinition]:
    """The metrics of one stage, in the order in which they are reported."""
    return list(_TABLES.get(stage, ()))


def default_criteria(stage: str) -> list[Criterion]:
    """The criteria a stage has when the spec says nothing."""
    return [
        Criterion(metric=d.name, op=d.op, bound=d.bound, blocking=d.blocking)
        for d in definitions(stage)
        if d.op is not None and d.bound is not None
    ]
