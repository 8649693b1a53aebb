"""Which project and which run a command means."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flows.workspace import Workspace, ledger_url
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
    for folder in (here, *here.parents):
        if (folder / "project.yaml").is_file():
            return folder
    raise InputError(
        f"no project.yaml in {here} or above it",
        "go into a project's folder or name it with --project; `gatewright init DIR` makes one",
    )


def open_ledger(project_dir: Path) -> Ledger:
    """The ledger of a project; raises `InputError` when the project has never been run."""
    from flows.ledger import Ledger

    url = ledger_of(project_dir)
    if isinstance(url, Path) and not url.is_file():
        raise InputError(f"{project_dir} has no runs yet", f"start one: gatewright run {project_dir.name}")
    return Ledger.open(url)


def ledger_of(project_dir: Path) -> str | Path:
    """Where a project's ledger is. A spec that does not load falls back to the project's own database."""
    from specs.errors import GatewrightError
    from specs.loading import load_project

    local = ledger_url(project_dir)
    if isinstance(local, Path) and local.is_file():
        return local
    try:
        return ledger_url(project_dir, load_project(project_dir).spec)
    except GatewrightError:
        return local


def find_run(run: str | None, project: Path | None = None) -> Found:
    """The run a command means: by id, by the folder of its project, else the open run, else the newest.

    Raises `InputError` when there is none or the id is unknown.
    """
    if run and project is None and (Path(run) / "project.yaml").is_file():
        project, run = Path(run), None
    folder = project_folder(project)
    ledger = open_ledger(folder)
    rows = ledger.runs()
    if not isinstance(ledger_of(folder), Path):  # a database that several projects share
        rows = [row for row in rows if row.project_dir == folder]
    if run:
        if not any(row.run == run for row in rows):
            known = ", ".join(row.run for row in rows[:5]) or "none"
            raise InputError(f"{run!r} is not a run of {folder}", f"known runs: {known}")
        return Found(Workspace(folder, run), ledger)
    if not rows:
        raise InputError(f"{folder} has no runs yet", f"start one: gatewright run {folder.name}")
    return Found(Workspace(folder, _preferred(rows).run), ledger)


def _preferred(rows: list[RunRow]) -> RunRow:
    open_rows = [row for row in rows if row.state not in ("finished", "rejected")]
    return max(open_rows or rows, key=lambda row: row.created_at)


def is_here(project_dir: Path) -> bool:
    """Whether the current folder is the project or inside it, so that commands need not name it."""
    here = Path.cwd().resolve()
    return project_dir == here or project_dir in here.parents
