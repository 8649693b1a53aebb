"""`task_sheet.yaml` of a project: written from a draft, read back, and what the first gate shows when it is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents.contract import ProposerContext
from agents.sheet_file import FILE_NAME, of_people, read_sheet, stale, to_yaml, with_numbers
from agents.task_sheet import checked
from flows import gatefiles
from flows.workspace import Workspace
from specs.canonical import sha256_bytes
from specs.errors import InputError, SpecError
from specs.files import write_bytes
from specs.project import Project
from specs.proposals import Proposal, TaskSheet

MAX_BYTES = 128 * 1024


def read_bytes(file: Path) -> bytes:
    """The bytes of a sheet file. Raises `InputError` when it cannot be read or is none by its size."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", "check the name and its permissions") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"{file} has {len(data):,} bytes; a task sheet has some thousand", "name a task_sheet.yaml")
    return data


def text_of(data: bytes, name: str) -> str:
    """The text of a sheet file. Raises `InputError` for bytes that are not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}:{line}: byte {error.start + 1} is not UTF-8", "save the file as UTF-8") from error


def write_sheet(file: Path, drafted: TaskSheet, spec: Project) -> int:
    """Write a draft, and keep the numbers that people changed in a file that is there; returns how many."""
    kept: dict[tuple[str, str], float] = {}
    if file.exists():
        try:
            found = read_sheet(text_of(read_bytes(file), file.name), drafted, spec, file.name, numbers_only=True)
        except SpecError as error:
            raise InputError(
                f"{file} is there and cannot be read, so that its numbers would be lost: {error.message}",
                "correct it, or move it away",
            ) from error
        kept = of_people(found)
        drafted = _with_words(drafted, found)
    write_bytes(file, to_yaml(drafted, spec, kept).encode())
    return len(kept)


def _with_words(drafted: TaskSheet, found: dict[str, dict[str, object]]) -> TaskSheet:
    """The draft with a person's budgets and sentences."""
    stages = []
    for stage in drafted.stages:
        entry = found.get(stage.name, {})
        written: dict[str, Any] = {key: entry[key] for key in ("budget_hours", "on_failure") if key in entry}
        stages.append(stage.model_copy(update=written))
    return drafted.model_copy(update={"stages": stages})


def with_sheet_file(
    workspace: Workspace, proposal: Proposal, context: ProposerContext, *, edited: bool = False
) -> Proposal:
    """The first gate's proposal with the numbers of the project's `task_sheet.yaml`, which is kept by its digest.

    All numbers of the file hold, unless feedback or an edit asks for something else: then those that a person changed
    in the file. A proposal without a sheet, and a project without a file, stay as they are.
    """
    file, run_dir = workspace.project_dir / FILE_NAME, workspace.folder
    if proposal.task_sheet is None or not (file.is_file() or proposal.sheet_file):
        return proposal
    data = kept_bytes(run_dir, proposal.sheet_file) if edited and proposal.sheet_file else read_bytes(file)
    found = read_sheet(text_of(data, FILE_NAME), proposal.task_sheet, context.spec)
    first = not context.feedback.strip() and not edited
    sheet = with_numbers(proposal.task_sheet, found, all_of_file=first)
    old = stale(found, proposal.task_sheet) if first else []
    given = bool((context.spec.goal or "").strip())
    sheet = checked(sheet, context, goal_given=given, stale=old, drafted=proposal.task_sheet)
    digest = sha256_bytes(data)
    write_bytes(gatefiles.sheet_path(run_dir, digest), data)
    own = next(s for s in sheet.stages if s.name == proposal.stage)
    return proposal.model_copy(update={"task_sheet": sheet, "expected": own.expected, "sheet_file": digest})


def read_back(project_dir: Path, context: ProposerContext, drafted: TaskSheet) -> TaskSheet:
    """The sheet of the project's file as the first gate would show it. Raises `SpecError` with what is wrong."""
    found = read_sheet(text_of(read_bytes(project_dir / FILE_NAME), FILE_NAME), drafted, context.spec)
    given = bool((context.spec.goal or "").strip())
    sheet = with_numbers(drafted, found)
    return checked(sheet, context, goal_given=given, stale=stale(found, drafted), drafted=drafted)


def kept_bytes(run_dir: Path, digest: str) -> bytes:
    """The sheet file that a proposal was made with. Raises `InputError` when it is gone or was changed."""
    path = gatefiles.sheet_path(run_dir, digest)
    if not path.is_file() or sha256_bytes(path.read_bytes()) != digest:
        raise InputError(f"{path} is missing or was changed", gatefiles.RESTORE)
    return path.read_bytes()
