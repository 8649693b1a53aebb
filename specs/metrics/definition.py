"""What a metric of a stage is."""

from __future__ import annotations

from collections.abc import Callable

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


def definer(stage: str) -> Callable[[str, str, str, str, str, str], MetricDefinition]:
    """How the table of a stage defines a metric: name, unit, rule, title in English and Chinese, how it is recomputed.

    The rule is `block <op> <bound>`, `warn <op> <bound>`, or empty.
    """

    def define(name: str, unit: str, rule: str, en: str, zh: str, recomputed: str) -> MetricDefinition:
        title = {"en": en, "zh": zh}
        if not rule:
            return MetricDefinition(stage=stage, name=name, unit=unit, recomputed=recomputed, title=title)
        kind, op, bound = rule.split()
        return MetricDefinition.model_validate(
            {
                "stage": stage,
                "name": name,
                "unit": unit,
                "recomputed": recomputed,
                "title": title,
                "op": op,
                "bound": float(bound),
                "blocking": kind == "block",
            }
        )

    return define
