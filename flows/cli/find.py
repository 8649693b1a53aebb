"""Which project and which run a command means."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from flows.ledgers import OPEN_STATES, absent, ledger_of_frozen, ledger_of_run, refuse_changed_ledger
from flows.workspace import RUN_ID, Workspace, ledger_url
from specs.errors import GatewrightError, InputError

if TYPE_CHECKING:
    from flows.ledger import Ledger, RunRow
    from flows.ledger.glance import Glance

    Readable = Ledger | Glance
    L = TypeVar("L", bound=Ledger | Glance)

__all__ = [
    "Found",
    "find_run",
    "is_here",
    "ledger_of",
    "ledger_of_run",
    "look_at",
    "look_for",
    "open_ledger",
    "project_folder",
    "runs_of",
]


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

    return Ledger.open(_place(project_dir))


def look_at(project_dir: Path) -> Readable:
    """The ledger of a project for reading only; quicker to open than the whole where it is SQLite."""
    return _look(_place(project_dir))


def _look(url: str | Path) -> Readable:
    from flows.ledger.glance import glance

    if isinstance(url, Path) and (found := glance(url)) is not None:
        return found
    from flows.ledger import Ledger

    return Ledger.open(url)


def _place(project_dir: Path) -> str | Path:
    url = ledger_of(project_dir)
    if absent(url):
        _refuse_changed(project_dir)
        raise InputError(f"{project_dir} has no runs yet", f"start one: gatewright run {shlex.quote(str(project_dir))}")
    return url


def ledger_of(project_dir: Path) -> str | Path:
    """Where a project's ledger is: where its spec says. Without a spec that loads, the project's own database."""
    if not names_ledger(project_dir):
        return ledger_url(project_dir)
    from specs.loading import load_project

    try:
        return ledger_url(project_dir, load_project(project_dir).spec)
    except GatewrightError:
        return ledger_url(project_dir)


def names_ledger(project_dir: Path) -> bool:
    """Whether `project.yaml` may name a ledger at all. Most do not, and reading YAML takes longer than a look."""
    try:
        return b"ledger" in (project_dir / "project.yaml").read_bytes()
    except OSError:
        return True


def find_run(run: str | None, project: Path | None = None) -> Found:
    """The run a command means: by id, by the folder of its project, else the open run, else the newest.

    A run by id is looked for in the ledger it began with, whatever `project.yaml` names by now. Raises `InputError`
    when there is none or the id is unknown, `RunOpen` when the open run is in another ledger than is named now.
    """
    from flows.ledger import Ledger

    return Found(*_find(run, project, Ledger.open))


def look_for(run: str | None, project: Path | None = None) -> tuple[Workspace, Readable]:
    """The same run for a command that only looks."""
    return _find(run, project, _look)


def _find(run: str | None, project: Path | None, opened: Callable[[str | Path], L]) -> tuple[Workspace, L]:
    if _is_project(run, project):
        project, run = Path(str(run)), None
    folder = project_folder(project)
    if run:
        return _by_id(folder, run, opened)
    ledger = opened(_place(folder))
    row = _preferred(ledger, folder)
    if row is None or row.state not in OPEN_STATES:
        _refuse_changed(folder, [known.run for known in ledger.runs()])
    if row is None:
        raise InputError(f"{folder} has no runs yet", f"start one: gatewright run {shlex.quote(str(folder))}")
    return Workspace(folder, row.run), ledger


def _by_id(folder: Path, run: str, opened: Callable[[str | Path], L]) -> tuple[Workspace, L]:
    if re.fullmatch(RUN_ID, run) and (folder / "runs" / run / "spec.json").is_file():
        workspace = Workspace(folder, run)
        place = ledger_of_frozen(workspace)
        if not absent(place) and (ledger := opened(place)).knows(run):
            return workspace, ledger
    ledger = opened(_place(folder))
    if ledger.knows(run) and _is_of(ledger.run(run), folder, ledger):
        return Workspace(folder, run), ledger
    known = ", ".join(row.run for row in runs_of(ledger, folder, limit=5)) or "none"
    shown = run if len(run) <= 100 else run[:100] + "..."
    raise InputError(f"{shown!r} is not a run of {folder}", f"known runs: {known}")


def runs_of(
    ledger: Readable, folder: Path, *, states: Collection[str] | None = None, limit: int | None = None
) -> list[RunRow]:
    """The runs of a project's folder, newest first: of a database that several projects share, only its own."""
    if is_own(ledger, folder):
        return ledger.runs(states=states, limit=limit)
    return [row for row in ledger.runs(states=states) if _is_of(row, folder, ledger)][:limit]


def place_of(row: RunRow, folder: Path) -> Workspace:
    """The folders of a run: below the project that was asked for, else (a shared database) where it began."""
    return Workspace(folder if (folder / "runs" / row.run).is_dir() else row.project_dir, row.run)


def is_own(ledger: Readable, folder: Path) -> bool:
    """Whether a ledger is the project's own database, which no other project shares."""
    place = getattr(ledger, "place", None)
    if place is None:
        url = cast("Ledger", ledger).engine.url
        place = Path(str(url.database)) if url.get_backend_name() == "sqlite" else None
    return place == ledger_url(folder)


def _is_of(row: RunRow, folder: Path, ledger: Readable) -> bool:
    """Whether a run is of this folder: by where it began, or by its files here after the project was moved."""
    return is_own(ledger, folder) or row.project_dir == folder or (folder / "runs" / row.run).is_dir()


def _refuse_changed(folder: Path, known: Collection[str] = ()) -> None:
    """Raises `RunOpen` when a run is open in another ledger than `project.yaml` names now."""
    named = None
    if names_ledger(folder):
        from specs.loading import load_project

        try:
            named = load_project(folder).spec.ledger
        except GatewrightError:
            return
    refuse_changed_ledger(folder, named, known)


def _is_project(run: str | None, project: Path | None) -> bool:
    """Whether what stands in the place of a run is the folder of its project."""
    return bool(run) and project is None and _there(Path(str(run)) / "project.yaml")


def refuse_run_as_file(file: Path, command: str, run: str | None, project: Path | None) -> None:
    """Raises `InputError` where a run's id stands in the place of the file to write."""
    folder = project_folder(Path(str(run)) if _is_project(run, project) else project)
    if open_ledger(folder).knows(str(file)):
        raise InputError(
            f"{file} is a run, not a file to write", f"the file comes first: gatewright {command} FILE {file}"
        )


def _preferred(ledger: Readable, folder: Path) -> RunRow | None:
    """The newest open run, else the newest."""
    for states in (OPEN_STATES, None):
        found = runs_of(ledger, folder, states=states, limit=1)
        if found:
            return found[0]
    return None


def is_here(project_dir: Path) -> bool:
    """Whether the current folder is the project or inside it, so that commands need not name it."""
    here = Path.cwd().resolve()
    return project_dir == here or project_dir in here.parents
