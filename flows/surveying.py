"""What the sources hold before the data stage has run: for the first gate and for `decompose`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agents.goal_terms import goal_terms, pattern
from flows.workspace import Workspace, code_version, project_inputs
from specs.base import Strict
from specs.canonical import digest
from specs.credentials import without_secrets
from specs.errors import Problem
from specs.files import write_json
from specs.project import Project
from tasks.models.resolve import ResolvedModel

SOURCES = "sources.json"
"""What a look through the sources found, in the folder of the run that looked."""


@dataclass(frozen=True)
class Look:
    """What the sources hold, as `ProposerContext` takes it, and every problem of them."""

    summaries: list[dict[str, Any]]
    survey: dict[str, Any]
    problems: list[Problem]


class _Kept(Strict):
    """A look in a file. `of` is the digest of everything that it depends on."""

    schema_version: int = 1
    of: str
    summaries: list[dict[str, Any]]
    survey: dict[str, Any]


def look(project_dir: Path, spec: Project, model: ResolvedModel | None, goal: str = "") -> Look:
    """Read all sources: their rows by source, and how many samples of which lengths they make.

    `goal` stands in the place of the one in the spec. Problems are collected; with one there is no survey.
    """
    from tasks.data.probe import probe_sources
    from tasks.data.survey import survey

    sources, problems = probe_sources(project_dir, spec)
    summaries = [source.model_dump(mode="json") for source in sources]
    if problems:
        return Look(summaries, {}, problems)
    wanted = {word: pattern(words) for word, words in goal_terms(goal or spec.goal or "").items()}
    found = survey(project_dir, spec, model.folder if model else None, wanted)
    return Look(summaries, found.model_dump(mode="json"), [])


def look_once(workspace: Workspace, spec: Project, model: ResolvedModel) -> Look:
    """The look of a run: kept in its folder, and taken again when a raw file, the spec, the model or the code changed.

    So a second round of the first gate and an edit at it read no source again.
    """
    inputs = project_inputs(workspace.project_dir, spec)
    of = digest({"inputs": inputs, "spec": without_secrets(spec), "model": model.sha256, "code": code_version()})
    file = workspace.folder / SOURCES
    try:
        kept = _Kept.model_validate_json(file.read_bytes())
        if kept.of == of:
            return Look(kept.summaries, kept.survey, [])
    except (OSError, ValidationError):
        pass  # not there yet, or not whole: it is made again
    found = look(workspace.project_dir, spec, model)
    if not found.problems and workspace.folder.is_dir():  # a stage that runs by itself may have no run
        write_json(file, _Kept(of=of, summaries=found.summaries, survey=found.survey))
    return found
