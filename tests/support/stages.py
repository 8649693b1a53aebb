"""Contexts of stages for tests: a spec, finished earlier stages, and folders to write to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specs.project import Project
from specs.stages import StageContext
from tasks.models.folder import digest_model


def small_spec(**changes: Any) -> Project:
    """A spec that validates; its sources are never read."""
    settings: dict[str, Any] = {
        "project": "small",
        "base_model": "tiny",
        "sources": [{"kind": "notes", "path": "raw/notes.md"}],
    }
    return Project.model_validate({**settings, **changes})


def stage_context(
    stage: str,
    project: Path,
    model: Path,
    parameters: Mapping[str, Any],
    inputs: Mapping[str, Path],
    attempt: int = 1,
    **spec: Any,
) -> StageContext:
    """A context whose attempt writes below `project/<stage>/<attempt>.partial`."""
    out = project / stage / f"{attempt:03d}.partial"
    for name in ("artifacts", "plots", "logs"):
        (out / name).mkdir(parents=True, exist_ok=True)
    return StageContext(
        run="r1",
        stage=stage,
        attempt=attempt,
        project_dir=project,
        spec=small_spec(**spec),
        parameters=dict(parameters),
        inputs=dict(inputs),
        base_model=model,
        base_model_sha256=digest_model(model),
        out_dir=out,
        checkpoints_dir=project / "checkpoints" / f"{stage}-{attempt:03d}",
    )
