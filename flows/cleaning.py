"""What may be deleted from a project without losing anything that is recorded: found, shown, and only then deleted.

Published attempts, proposals, gates and releases are never touched; nor is anything of a run that a process works on.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from flows.ledger import Ledger
from flows.ledger.upkeep import record_upkeep
from flows.ledgers import ledger_of_run
from flows.state import RunState, fold
from flows.workspace import Workspace, ledger_url
from specs.errors import GatewrightError, InputError
from specs.events import FilesDeleted
from specs.files import storage_errors
from specs.project import Project

DEFAULT_AGE = timedelta(days=7)
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_FROZEN = {"spec.json", "policy.json", "environment.json"}


@dataclass(frozen=True)
class Candidate:
    """One file or folder that may go, by which rule; `newest` is when anything in it was last written."""

    rule: str
    run: str | None
    path: str
    files: int
    bytes: int
    newest: datetime


@dataclass(frozen=True)
class Busy:
    """A run that was left alone, and why."""

    run: str
    why: str


@dataclass(frozen=True)
class Findings:
    """What may go, what was left alone, and how large the project is with all of it."""

    candidates: list[Candidate]
    busy: list[Busy]
    project_bytes: int


def find_garbage(project_dir: Path, spec: Project, now: datetime, age: timedelta = DEFAULT_AGE) -> Findings:
    """Everything of a project that is old enough to go. Deletes nothing."""
    found: list[Candidate] = []
    busy: list[Busy] = []
    for folder in _folders(project_dir / "runs"):
        workspace = Workspace(project_dir, folder.name)
        try:
            found += _of_run(workspace, _state(workspace, spec, busy))
        except GatewrightError as error:
            busy.append(Busy(folder.name, error.message))
    for folder in _folders(project_dir / "ungated"):
        found.append(_candidate(project_dir, "a stage that ran by itself", None, folder))
    old = [c for c in found if now - c.newest >= age]
    return Findings(sorted(old, key=lambda c: (c.newest, c.path)), busy, _size(project_dir)[1])


def _state(workspace: Workspace, spec: Project, busy: list[Busy]) -> RunState | None:
    """The state of a run; None for a run that no ledger knows. Raises `GatewrightError` while a process works on it."""
    if (workspace.folder / "spec.json").is_file():
        ledger = ledger_of_run(workspace)
    else:
        ledger = Ledger.open(ledger_url(workspace.project_dir, spec))
    try:
        if not ledger.knows(workspace.run):
            return None
        held = ledger.lease_holder(workspace.run)
        if held is not None and held[1]:
            raise GatewrightError(f"{held[0]} works on it")
        return fold(ledger.events(workspace.run))
    finally:
        ledger.close()


def _of_run(workspace: Workspace, state: RunState | None) -> list[Candidate]:
    root, run = workspace.project_dir, workspace.run
    if state is None:
        names = {p.name.removesuffix(".part") for p in workspace.folder.iterdir()}
        only_frozen = names <= _FROZEN
        return [_candidate(root, "a run that was never recorded", run, workspace.folder)] if only_frozen else []
    found = [
        _candidate(root, "an attempt that was left behind", run, path)
        for path in sorted(workspace.folder.glob("[0-9]*/*.partial-left-*"))
    ]
    if state.terminal:
        partial = [*workspace.folder.glob("[0-9]*/*.partial"), *workspace.folder.glob("release.partial")]
        found += [_candidate(root, "half of something, of a run that has ended", run, path) for path in sorted(partial)]
    parts = [p for pattern in ("*.part", "gates/**/*.part", "proposals/*.part") for p in workspace.folder.glob(pattern)]
    found += [_candidate(root, "half of a file", run, path) for path in sorted(parts)]
    return found + _checkpoints(workspace, state)


def _checkpoints(workspace: Workspace, state: RunState) -> list[Candidate]:
    """Checkpoints that no resume can need: of ended runs, and of attempts that are published or superseded."""
    found = []
    for folder in _folders(workspace.folder / "checkpoints"):
        stage, _, number = folder.name.rpartition("-")
        attempt = next((a for a in state.attempts.get(stage, []) if f"{a.number:03d}" == number), None)
        over = attempt is not None and attempt.state in ("published", "superseded")
        if not (state.terminal or over) or not any(p.is_file() for p in folder.rglob("*")):
            continue
        if any(folder.rglob("*.pin")):
            continue
        found.append(_candidate(workspace.project_dir, "checkpoints of a finished attempt", workspace.run, folder))
    return found


def within_quota(findings: Findings, quota_bytes: int) -> tuple[list[Candidate], int]:
    """The oldest candidates that must go to come under a quota, and by how many bytes it is missed all the same."""
    left, chosen = findings.project_bytes, []
    for candidate in findings.candidates:
        if left <= quota_bytes:
            break
        chosen.append(candidate)
        left -= candidate.bytes
    return chosen, max(0, left - quota_bytes)


def delete(project_dir: Path, spec: Project, candidates: Iterable[Candidate], actor: str) -> int:
    """Record each deletion, then do it; returns the bytes freed. A crash between the two is repeated, never silent."""
    ledger = Ledger.open(ledger_url(project_dir, spec))
    freed = 0
    try:
        for candidate in candidates:
            payload = FilesDeleted(
                rule=candidate.rule,
                run=candidate.run,
                paths=[candidate.path],
                files=candidate.files,
                bytes=candidate.bytes,
            )
            record_upkeep(ledger, spec.project, payload, actor)
            path = project_dir / candidate.path
            with storage_errors(path):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            freed += candidate.bytes
    finally:
        ledger.close()
    return freed


def parse_bytes(text: str) -> int:
    """`50GB` as bytes. Raises `InputError`."""
    number, unit = text.strip().upper().rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), text.strip().upper()
    unit = unit[len(number) :].strip() or "B"
    try:
        return round(float(number) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        raise InputError(f"{text!r} is not a size", f"write a number and one of {', '.join(_UNITS)}") from None


def parse_age(text: str) -> timedelta:
    """`7d`, `12h` or `0` as a length of time. Raises `InputError`."""
    number, unit = (text[:-1], text[-1:]) if text[-1:] in "dh" and text else (text, "d")
    try:
        return timedelta(**{"days" if unit == "d" else "hours": float(number)})
    except (ValueError, OverflowError):
        raise InputError(f"{text!r} is not an age", "write days or hours, such as 7d or 12h") from None


def _folders(parent: Path) -> list[Path]:
    return sorted(p for p in parent.iterdir() if p.is_dir() and not p.is_symlink()) if parent.is_dir() else []


def _candidate(root: Path, rule: str, run: str | None, path: Path) -> Candidate:
    files, size, newest = _size(path)
    return Candidate(rule, run, path.relative_to(root).as_posix(), files, size, datetime.fromtimestamp(newest, UTC))


def _size(path: Path) -> tuple[int, int, float]:
    """(files, bytes, time of the newest write) of a file or a folder; links count as themselves."""
    files, size, newest = 0, 0, path.lstat().st_mtime
    if path.is_symlink() or path.is_file():
        return 1, path.lstat().st_size, newest
    for folder, _, names in os.walk(path):
        for name in names:
            found = os.lstat(os.path.join(folder, name))
            files, size, newest = files + 1, size + found.st_size, max(newest, found.st_mtime)
    return files, size, newest
