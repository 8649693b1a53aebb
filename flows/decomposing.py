"""Draft the task sheet of a project that may not have run yet."""

from __future__ import annotations

from pathlib import Path

from agents.proposer import ProposerContext
from agents.task_sheet import sheet_of
from specs.base import Language
from specs.errors import SpecError
from specs.loading import load_project
from specs.proposals import TaskSheet


def draft(project: Path, goal: str | None) -> tuple[Language, TaskSheet]:
    """The sheet by rules, from the spec and the sources as they lie there, in the project's language."""
    from tasks.data.probe import probe_sources
    from tasks.memory import this_device

    loaded = load_project(project)
    sources, problems = probe_sources(loaded.folder, loaded.spec)
    if problems:
        raise SpecError(problems)
    context = ProposerContext(
        spec=loaded.spec,
        gate="data",
        source_summaries=[s.model_dump(mode="json") for s in sources],
        device=this_device(loaded.spec.hardware, loaded.spec.launcher.memory_gb).facts(),
    )
    return loaded.spec.language, sheet_of(context, goal=goal or "")
