"""Draft the task sheet of a project that may not have run yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agents.gate_rules import suggest
from agents.proposer import MemoryFunction, ProposerContext
from agents.sheet_file import FILE_NAME
from agents.task_sheet import sheet_of
from flows.costs import costs_file, remembered
from flows.earlier import Earlier, earlier_results
from flows.ledger import Ledger
from flows.ledgers import absent
from flows.proposing import memory_of, model_of
from flows.sheets import write_sheet
from flows.surveying import look
from flows.workspace import Workspace, ledger_url
from specs.credentials import without_secrets
from specs.errors import InputError, SpecError
from specs.files import storage_errors, write_bytes
from specs.loading import LoadedProject, load_project
from specs.proposals import TaskSheet
from specs.stages import Progress
from tasks.models.resolve import model_kind


@dataclass(frozen=True)
class Draft:
    """A drafted sheet, with the project that it is of and what could not be counted."""

    loaded: LoadedProject
    context: ProposerContext
    sheet: TaskSheet
    notes: list[str]


def require_no_goal(goal: str | None, file: Path | None) -> None:
    """Raises `InputError` for a goal of a draft where the file of the sheet is meant: the run's goal is the spec's."""
    if goal is not None and (file is None or file.suffix.lower() in (".yaml", ".yml")):
        raise InputError(
            f"{goal!r} is taken as a goal, and the file of a sheet has that of project.yaml",
            "write `goal:` there and leave it out here; another file is named with --to FILE",
        )


@dataclass(frozen=True)
class Written:
    """A sheet that was written: where, and how many numbers of a person stay in it."""

    file: Path
    kept: int


def draft(project: Path, goal: str | None, progress: Progress | None = None) -> Draft:
    """The sheet by rules: from the spec, the sources as they lie there, the base model and the earlier runs.

    It is what the first gate of a run would show. A model that is not on this machine is not fetched for a draft; one
    that an installed package brings is made a folder once, which the run then finds.
    """
    from tasks.memory import this_device

    loaded = load_project(project)
    spec = loaded.spec
    workspace, notes = Workspace(loaded.folder, ""), []
    here = model_kind(spec.base_model, loaded.folder) != "hub"
    resolved = model_of(workspace, spec, progress) if here else None
    model = resolved.folder if resolved else None
    looked = look(loaded.folder, spec, resolved, goal or "")
    if looked.problems:
        raise SpecError(looked.problems)
    costs, unread = remembered()
    if unread:
        notes.append(f"{unread} lines of {costs_file()} cannot be read and teach nothing")
    if model is None:
        notes.append(f"hours and memory are left out: {spec.base_model} is fetched by the first `gatewright run`")
    place = ledger_url(loaded.folder, spec)
    earlier = Earlier() if absent(place) else earlier_results(Ledger.open(place), workspace, spec.project)
    if earlier.unread:
        notes.append(f"{earlier.unread} earlier runs teach nothing: their files are incomplete or were changed")
    context = ProposerContext(
        spec=without_secrets(spec),
        gate="data",
        source_summaries=looked.summaries,
        survey=looked.survey,
        base_model=model,
        model_sha256=resolved.sha256 if resolved else "",
        costs=costs,
        costs_unread=unread,
        device=this_device(spec.hardware, spec.launcher.memory_gb).facts(),
        history=earlier.results,
        runs_unread=earlier.unread,
    )
    memory: MemoryFunction | None = memory_of(workspace, spec) if model is not None else None
    sheet = sheet_of(context, memory, goal=goal or "", proposed=suggest(context, memory))
    return Draft(loaded, context, sheet, notes)


def write_to(drafted: Draft, file: Path | None, shown: TaskSheet) -> Written:
    """Write a draft as YAML that can be signed, or what is shown of it as Markdown or HTML to read.

    Default: the project's own file.
    """
    from agents.reporter import sheet_html, sheet_page

    spec = drafted.loaded.spec
    file = drafted.loaded.folder / FILE_NAME if file is None else file
    suffix = file.suffix.lower()
    if suffix in (".yaml", ".yml"):
        return Written(file, write_sheet(file, drafted.sheet, spec))
    if suffix not in (".md", ".html"):
        raise InputError(f"{file} is no sheet by its name", "name a file that ends in .yaml, .md or .html")
    page = sheet_page(shown, spec) if suffix == ".md" else sheet_html(shown, spec)
    with storage_errors(file):
        write_bytes(file, page.encode())
    return Written(file, 0)
