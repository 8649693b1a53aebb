"""The built-in stages: where the code of each lies, what it needs, and how its metrics are recomputed.

Modules are named, not imported, so that asking for a stage's name costs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from specs.base import Strict
from specs.criteria import Metric
from specs.stages import RunStage


class StageDefinition(Strict):
    """A stage: `run` and `metrics` are `module:function`; `inputs` names the earlier stages it reads."""

    name: str
    run: str
    metrics: str
    inputs: list[str]
    needs_model: bool = True


DEFINITIONS: dict[str, StageDefinition] = {
    d.name: d
    for d in (
        StageDefinition(name="data", run="tasks.data.stage:run", metrics="tasks.verify.data:metrics", inputs=[]),
        StageDefinition(
            name="dry_run", run="tasks.dry_run:run", metrics="tasks.verify.dry_run:metrics", inputs=["data"]
        ),
        StageDefinition(
            name="stress_test",
            run="tasks.stress_test:run",
            metrics="tasks.verify.stress_test:metrics",
            inputs=["data"],
        ),
        StageDefinition(
            name="train",
            run="tasks.training.stage:run",
            metrics="tasks.verify.train:metrics",
            inputs=["data", "stress_test"],
        ),
        StageDefinition(
            name="evaluate",
            run="tasks.evaluate.stage:run",
            metrics="tasks.verify.evaluate:metrics",
            inputs=["data", "stress_test", "train"],
        ),
    )
}

MetricsFunction = Callable[[Path, Mapping[str, Path], Mapping[str, Any]], dict[str, Metric]]
"""(folder of the attempt, folders of its inputs by stage name, context of the attempt as plain data) to metrics."""


def _load(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def run_function(stage: str) -> RunStage:
    """The function that runs a stage."""
    function: RunStage = _load(DEFINITIONS[stage].run)
    return function


def metrics_function(stage: str) -> MetricsFunction:
    """The function that recomputes a stage's metrics."""
    function: MetricsFunction = _load(DEFINITIONS[stage].metrics)
    return function
