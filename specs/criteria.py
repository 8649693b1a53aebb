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
    where_applicable: bool = Field(
        False, description="of a default: no condition where its metric does not apply; what a person writes always is"
    )


class Metric(Strict):
    """A measured value. `value` is null where it could not be measured, and then `reason` says why.

    A measure of something that the data has nothing of does not apply; one that could not be taken does.
    """

    value: float | None
    unit: str = Field(description="SI or field unit: rows, tokens, bytes, s, nats/token, share, count")
    reason: str = ""
    applies: bool = Field(True, description="false where there is nothing that it measures; `reason` says what lacks")


Outcome = Literal["passed", "failed", "warning", "not_applicable"]


class Verdict(Strict):
    """What a criterion says of the recomputed metric. A metric that is missing or null never passes.

    A default whose metric does not apply blocks nothing, and `applies` says so.
    """

    metric: Name
    value: float | None
    op: Op
    bound: float
    blocking: bool
    passed: bool
    unit: str = ""
    reason: str = ""
    applies: bool = True

    @property
    def outcome(self) -> Outcome:
        """What a person is told."""
        if not self.applies:
            return "not_applicable"
        return "passed" if self.passed else "failed" if self.blocking else "warning"


def judge(criteria: Sequence[Criterion], metrics: Mapping[str, Metric]) -> list[Verdict]:
    """One verdict per criterion, in order. A pure function."""
    verdicts = []
    for criterion in criteria:
        metric = metrics.get(criterion.metric)
        value = metric.value if metric else None
        passed = value is not None and _COMPARE[criterion.op](value, criterion.bound)
        reason = metric.reason if metric else "no artifact of this stage shows this metric"
        applies = metric is None or metric.applies or not criterion.where_applicable
        verdicts.append(
            Verdict(
                metric=criterion.metric,
                value=value,
                op=criterion.op,
                bound=criterion.bound,
                blocking=criterion.blocking and applies,
                passed=passed,
                unit=metric.unit if metric else "",
                reason=reason,
                applies=applies,
            )
        )
    return verdicts


def blocked(verdicts: Sequence[Verdict]) -> bool:
    """Whether a blocking criterion failed."""
    return any(v.outcome == "failed" for v in verdicts)


def merge(defaults: Sequence[Criterion], added: Sequence[Criterion]) -> list[Criterion]:
    """The criteria of a stage: those a person wrote replace the defaults on the same metric and side.

    Sides are upper (`<`, `<=`), lower (`>`, `>=`) and exact (`==`, `!=`); a default whose metric and side a
    person does not name stays as it is.
    """

    def side(criterion: Criterion) -> tuple[str, str]:
        return criterion.metric, {"<": "upper", ">": "lower"}.get(criterion.op[0], "exact")

    named = {side(c) for c in added}
    return [c for c in defaults if side(c) not in named] + list(added)
