"""What a metric of a stage is."""

from __future__ import annotations

from typing import Protocol

from pydantic import Field

from specs.base import Strict
from specs.criteria import Op


class MetricDefinition(Strict):
    """A default metric of a stage. Without `op` it is reported and not judged."""

    stage: str
    name: str
    unit: str
    recomputed: str
    title: dict[str, str]
    op: Op | None = None
    bound: float | None = None
    blocking: bool = True
    needs: str = Field("", description="what there must be for it to apply; empty: it always does")


class Define(Protocol):
    """Defines a metric by name, unit, rule, title in English and Chinese, how it is recomputed, and what it needs."""

    def __call__(
        self, name: str, unit: str, rule: str, en: str, zh: str, recomputed: str, needs: str = ""
    ) -> MetricDefinition:
        """The definition."""


def definer(stage: str) -> Define:
    """How the table of a stage defines its metrics. The rule is `block <op> <bound>`, `warn <op> <bound>`, or empty."""

    def define(name: str, unit: str, rule: str, en: str, zh: str, recomputed: str, needs: str = "") -> MetricDefinition:
        kind, op, bound = rule.split() if rule else ("block", None, None)
        return MetricDefinition.model_validate(
            {
                "stage": stage,
                "name": name,
                "unit": unit,
                "recomputed": recomputed,
                "title": {"en": en, "zh": zh},
                "op": op,
                "bound": None if bound is None else float(bound),
                "blocking": kind == "block",
                "needs": needs,
            }
        )

    return define
