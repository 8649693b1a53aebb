"""The stages: where the code of each lies, what it needs, and how its metrics are recomputed.

Modules are named, not imported, so that asking for a stage's name costs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from specs.added import stands_in
from specs.base import Strict
from specs.criteria import Metric
from specs.project import Project
from specs.stages import RunStage


class StageDefinition(Strict):
    """A stage: `run` and `metrics` are `module:function`; `inputs` names the earlier stages it reads.

    `inputs` maps the stage whose artifacts it asks for to the one whose folder it is given: another one only where an
    added stage rewrites what the first made.
    """

    name: str
    run: str
    metrics: str
    inputs: dict[str, str]
    needs_model: bool = True


def _same(*stages: str) -> dict[str, str]:
    return {stage: stage for stage in stages}


DEFINITIONS: dict[str, StageDefinition] = {
    d.name: d
    for d in (
        StageDefinition(name="data", run="tasks.data.stage:run", metrics="tasks.verify.data:metrics", inputs={}),
        StageDefinition(
            name="dry_run", run="tasks.dry_run:run", metrics="tasks.verify.dry_run:metrics", inputs=_same("data")
        ),
        StageDefinition(
            name="stress_test",
            run="tasks.stress_test:run",
            metrics="tasks.verify.stress_test:metrics",
            inputs=_same("data"),
        ),
        StageDefinition(
            name="train",
            run="tasks.training.stage:run",
            metrics="tasks.verify.train:metrics",
            inputs=_same("data", "stress_test"),
        ),
        StageDefinition(
            name="evaluate",
            run="tasks.evaluate.stage:run",
            metrics="tasks.verify.evaluate:metrics",
            inputs=_same("data", "stress_test", "train"),
        ),
    )
}

MetricsFunction = Callable[[Path, Mapping[str, Path], Mapping[str, Any]], dict[str, Metric]]
"""(folder of the attempt, folders of its inputs by stage name, context of the attempt as plain data) to metrics."""


def _load(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def definition(spec: Project, stage: str) -> StageDefinition:
    """A stage of a project, built-in or added."""
    added = spec.added_stages.get(stage)
    if added is not None:
        return StageDefinition(
            name=stage,
            run="tasks.added.stage:run",
            metrics="tasks.added.stage:metrics",
            inputs=_same(*added.input_stages),
            needs_model=added.needs_model,
        )
    found = DEFINITIONS[stage]
    replaced = stands_in(spec.added_stages).get(stage, {})
    return found.model_copy(update={"inputs": {asked: replaced.get(asked, asked) for asked in found.inputs}})


def run_function(spec: Project, stage: str) -> RunStage:
    """The function that runs a stage."""
    function: RunStage = _load(definition(spec, stage).run)
    return function


def metrics_function(spec: Project, stage: str) -> MetricsFunction:
    """The function that recomputes a stage's metrics."""
    function: MetricsFunction = _load(definition(spec, stage).metrics)
    return function
