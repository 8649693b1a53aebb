"""Everything that can be said of a project before it runs: sources and base model, all problems at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from specs.errors import ModelError, Problem
from specs.loading import LoadedProject
from specs.yaml_tree import dotted, read_yaml

if TYPE_CHECKING:
    from tasks.data.probe import SourceSummary


@dataclass(frozen=True)
class CheckReport:
    """What the check found: `problems` stop a run, `notes` are worth knowing, `sources` is what each file holds."""

    problems: list[Problem] = field(default_factory=list)
    sources: list[SourceSummary] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check_project(loaded: LoadedProject, with_model: bool) -> CheckReport:
    """Look at every source and, if asked, at the base model and the model of the dry run.

    Cheap: nothing is downloaded, converted or loaded. The spec itself was checked when it was read.
    """
    from tasks.data.probe import probe_sources

    notes: list[str] = []
    sources, problems = probe_sources(loaded.folder, loaded.spec)
    if with_model:
        problems = [*problems, *_model_problems(loaded, notes)]
    return CheckReport(_with_lines(problems, loaded), sources, notes)


def _model_problems(loaded: LoadedProject, notes: list[str]) -> list[Problem]:
    from tasks.models.resolve import check_model

    found = []
    for path, name in (("base_model", loaded.spec.base_model), ("dry_run.model", loaded.spec.dry_run.model)):
        if name is None:
            continue
        try:
            kind = check_model(name, loaded.folder)
        except ModelError as error:
            found.append(_problem(loaded, path, error, name))
        else:
            if kind == "hub":
                notes.append(f"{path}: {name} is fetched from the hub when the run starts, unless it is cached")
    return found


def _problem(loaded: LoadedProject, path: str, error: ModelError, value: str) -> Problem:
    return Problem(loaded.file.name, None, path, value, error.message, error.hint)


def _with_lines(problems: list[Problem], loaded: LoadedProject) -> list[Problem]:
    """The problems with the line of `project.yaml` that each is about, in the order of the file."""
    tree = read_yaml(loaded.text, loaded.file.name)
    lines = {dotted(path): line for path, line in tree.lines.items()}
    found = []
    for problem in problems:
        place = problem.path
        while place and place not in lines:
            place = place[: max(place.rfind("."), place.rfind("["))] if ("." in place or "[" in place) else ""
        found.append(replace(problem, line=problem.line or lines.get(place)))
    return sorted(found, key=lambda p: (p.line or 0, p.path, p.rule))
