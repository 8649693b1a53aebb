"""Acceptance criteria: `metric op bound`, blocking or warning, and their verdicts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from pydantic import Field

from specs.base import Name, Strict

Op = Literal["==", "!=", "<", "<=", ">", ">="]

_COMPARE: dict[Op, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Criterion(Strict):
    """One condition on one metric of a stage. A blocking one that fails closes the way forward."""

    metric: Name
    op: Op
    bound: float
    blocking: bool = True


class Metric(Strict):
    """A measured value. `value` is null where it could not be measured, and then `reason` says why."""

    value: float | None
    unit: str = Field(description="SI or field unit: rows, tokens, bytes, s, nats/token, share, count")
    reason: str = ""


class Verdict(Strict):
    """What a criterion says of the recomputed metric. A metric that is missing or null never passes."""

    metric: Name
    value: float | None
    op: Op
    bound: float
    blocking: bool
    passed: bool
    unit: str = ""
    reason: str = ""


def judge(criteria: Sequence[Criterion], metrics: Mapping[str, Metric]) -> list[Verdict]:
    """One verdict per criterion, in order. A pure function."""
    verdicts = []
    for criterion in criteria:
        metric = metrics.get(criterion.metric)
        value = metric.value if metric else None
        passed = value is not None and _COMPARE[criterion.op](value, criterion.bound)
        reason = metric.reason if metric else "no artifact of this stage shows this metric"
        verdicts.append(
            Verdict(
                metric=criterion.metric,
                value=value,
                op=criterion.op,
                bound=criterion.bound,
                blocking=criterion.blocking,
                passed=passed,
                unit=metric.unit if metric else "",
                reason=reason,
            )
        )
    return verdicts


def blocked(verdicts: Sequence[Verdict]) -> bool:
    """Whether a blocking criterion failed."""
    return any(v.blocking and not v.passed for v in verdicts)


def merge(defaults: Sequence[Criterion], added: Sequence[Criterion]) -> list[Criterion]:
    """The criteria of a stage: those a person wrote replace the defaults on the same metric and side.

    Sides are upper (`<`, `<=`), lower (`>`, `>=`) and exact (`==`, `!=`); a default whose metric and side a
    person does not name stays as it is.
    """

    def side(criterion: Criterion) -> tuple[str, str]:
        return criterion.metric, {"<": "upper", ">": "lower"}.get(criterion.op[0], "exact")

    named = {side(c) for c in added}
    return [c for c in defaults if side(c) not in named] + list(added)
