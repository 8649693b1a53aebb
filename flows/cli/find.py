"""Which project and which run a command means."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flows.workspace import Workspace, frozen_spec, ledger_url
from specs.errors import InputError

if TYPE_CHECKING:
    from flows.ledger import Ledger, RunRow


@dataclass(frozen=True)
class Found:
    """A run of a project, with the ledger that records it."""

    workspace: Workspace
    ledger: Ledger

    @property
    def run(self) -> str:
        """The run's id."""
        return self.workspace.run


def project_folder(start: Path | None = None) -> Path:
    """The project in or above a folder (default: the current one); raises `InputError` when there is none."""
    here = (start or Path.cwd()).resolve()
    if start is not None and not _there(here):  # a slip of the finger must not mean the project around it
        raise InputError(f"{start} does not exist", "name a project's folder; `gatewright init DIR` makes one")
    for folder in (here, *here.parents):
        if _there(folder / "project.yaml"):
            return folder
    raise InputError(
        f"no project.yaml in {here} or above it",
        "go into a project's folder or name it with --project; `gatewright init DIR` makes one",
    )


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that no file system takes, a folder that may not be read
        return False


def open_ledger(project_dir: Path) -> Ledger:
    """The ledger of a project; raises `InputError` when the project has never been run."""
    from flows.ledger import Ledger

    url = ledger_of(project_dir)
    if isinstance(url, Path) and not url.is_file():
        raise InputError(f"{project_dir} has no runs yet", f"start one: gatewright run {shlex.quote(str(project_dir))}")
    return Ledger.open(url)


def ledger_of(project_dir: Path) -> str | Path:
    """Where a project's ledger is: where its spec says. Without a spec that loads, the project's own database."""
    from specs.errors import GatewrightError
    from specs.loading import load_project

    try:
        return ledger_url(project_dir, load_project(project_dir).spec)
    except GatewrightError:
        return ledger_url(project_dir)


def ledger_of_run(workspace: Workspace) -> Ledger:
    """The ledger of a run: where the spec it began with says, whatever project.yaml says by now."""
    from flows.ledger import Ledger

    return Ledger.open(ledger_url(workspace.project_dir, frozen_spec(workspace)))


def find_run(run: str | None, project: Path | None = None) -> Found:
    """The run a command means: by id, by the folder of its project, else the open run, else the newest.

    Raises `InputError` when there is none or the id is unknown.
    """
    if _is_project(run, project):
        project, run = Path(str(run)), None
    folder = project_folder(project)
    ledger, rows = _runs_in(folder)
    if run:
        if not any(row.run == run for row in rows):
            known = ", ".join(row.run for row in rows[:5]) or "none"
            shown = run if len(run) <= 100 else run[:100] + "..."
            raise InputError(f"{shown!r} is not a run of {folder}", f"known runs: {known}")
        return Found(Workspace(folder, run), ledger)
    if not rows:
        raise InputError(f"{folder} has no runs yet", f"start one: gatewright run {shlex.quote(str(folder))}")
    return Found(Workspace(folder, _preferred(rows).run), ledger)


def _is_project(run: str | None, project: Path | None) -> bool:
    """Whether what stands in the place of a run is the folder of its project."""
    return bool(run) and project is None and _there(Path(str(run)) / "project.yaml")


def refuse_run_as_file(file: Path, command: str, run: str | None, project: Path | None) -> None:
    """Raises `InputError` where a run's id stands in the place of the file to write."""
    _ledger, rows = _runs_in(project_folder(Path(str(run)) if _is_project(run, project) else project))
    if any(row.run == str(file) for row in rows):
        raise InputError(
            f"{file} is a run, not a file to write", f"the file comes first: gatewright {command} FILE {file}"
        )


def _runs_in(folder: Path) -> tuple[Ledger, list[RunRow]]:
    ledger = open_ledger(folder)
    rows = ledger.runs()
    if not isinstance(ledger_of(folder), Path):  # a database that several projects share
        rows = [row for row in rows if row.project_dir == folder]
    return ledger, rows


def _preferred(rows: list[RunRow]) -> RunRow:
    open_rows = [row for row in rows if row.state not in ("finished", "rejected")]
    return max(open_rows or rows, key=lambda row: row.created_at)


def is_here(project_dir: Path) -> bool:
    """Whether the current folder is the project or inside it, so that commands need not name it."""
    here = Path.cwd().resolve()
    return project_dir == here or project_dir in here.parents
