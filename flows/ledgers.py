"""Which ledger a project and a run have, and the run that a changed `ledger:` would lose."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from flows.workspace import Workspace, ledger_url, live_spec
from specs.errors import GatewrightError, RunOpen
from specs.secrets import without_password

if TYPE_CHECKING:
    from flows.ledger import Ledger

OPEN_STATES = ("running", "waiting", "decided", "failed", "stopped")


def ledger_of_run(workspace: Workspace) -> Ledger:
    """The ledger of a run: where the spec it began with says, whatever project.yaml says by now."""
    from flows.ledger import Ledger

    return Ledger.open(ledger_of_frozen(workspace))


def ledger_of_frozen(workspace: Workspace) -> str | Path:
    """Where the ledger of a run is. Most specs name none, and then the spec need not be read whole to know."""
    known, kept = _kept_ledger(workspace.folder / "spec.json")
    if known and kept is None:
        return ledger_url(workspace.project_dir)
    return ledger_url(workspace.project_dir, live_spec(workspace))


def absent(url: str | Path) -> bool:
    """Whether a ledger is a SQLite file that does not exist: then there is nothing to open, and nothing is made."""
    if isinstance(url, Path):
        return not url.is_file()
    scheme, found, place = url.partition("://")
    if not found:
        return not Path(url).is_file()
    return scheme.split("+")[0] == "sqlite" and not Path(place[1:]).is_file()


def refuse_changed_ledger(project_dir: Path, named: str | None, known: Collection[str] = ()) -> None:
    """Raises `RunOpen` when a run of this project is open in another ledger than `named`, that of `project.yaml`.

    `known` are the runs that the ledger named now records: their specs need not be looked at.
    """
    seen: set[str | None] = {named and without_password(named)}
    for run in _runs_on_disk(project_dir, set(known)):
        readable, kept = _kept_ledger(project_dir / "runs" / run / "spec.json")
        if not readable or kept in seen:
            continue
        seen.add(kept)
        _refuse_open(project_dir, run, kept)


def _refuse_open(project_dir: Path, run: str, kept: str | None) -> None:
    line = f"ledger: {kept}" if kept else "no `ledger:` line (the project's own database)"
    back = f"write {line} in project.yaml again to go on with it, or to end it with `gatewright close`"
    place = ledger_url(project_dir, live_spec(Workspace(project_dir, run)))
    if absent(place):
        return
    from flows.ledger import Ledger

    try:
        ledger = Ledger.open(place)
    except GatewrightError as error:
        raise RunOpen(
            f"project.yaml names another ledger than run {run} has, and that one cannot be asked: {error.message}",
            f"{back}; if that ledger is gone for good, move runs/{run} out of the project",
        ) from error
    for row in ledger.runs(states=OPEN_STATES):
        if (project_dir / "runs" / row.run).is_dir() and row.project_dir.name == project_dir.name:
            raise RunOpen(f"run {row.run} is open ({row.state}) in another ledger than project.yaml names now", back)


def _runs_on_disk(project_dir: Path, known: set[str]) -> list[str]:
    folder = project_dir / "runs"
    return sorted({p.name for p in folder.iterdir()} - known, reverse=True) if folder.is_dir() else []


def _kept_ledger(path: Path) -> tuple[bool, str | None]:
    """(whether a frozen spec can be read, the ledger that it names)."""
    try:
        found = json.loads(path.read_bytes()).get("ledger")
    except (OSError, ValueError, AttributeError):
        return False, None
    return True, found if isinstance(found, str) else None
