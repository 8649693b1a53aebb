"""What may be deleted from a project without losing anything that is recorded: found, shown, and only then deleted.

Published attempts, proposals, gates and releases are never touched; nor is anything of a run that a process works on.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from flows.audit.history import stored_rows
from flows.ledger import Ledger
from flows.ledger.upkeep import record_upkeep
from flows.ledgers import ledger_of_frozen
from flows.state import RunState, fold
from flows.workspace import Workspace, ledger_url
from specs.errors import GatewrightError, InputError
from specs.events import FilesDeleted
from specs.files import storage_errors
from specs.project import Project

DEFAULT_AGE = timedelta(days=7)
UNNAMED = "a document that no event names"
IN_FLIGHT = timedelta(hours=1)
"""A decision stores the edited proposal first and its event last: what is younger may be one that is being made."""

_NAMING = frozenset(
    {"proposal.made", "transcript.stored", "gate.opened", "gate.amended", "approval.recorded", "decision.recorded"}
)
_DOCUMENTS = ("proposals/*.json", "transcripts/*.json", "gates/*/*/amended/*.json")
_DIGEST = re.compile(rb'"([0-9a-f]{64})"')
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
    with _Ledgers(project_dir, spec) as ledgers:
        for folder in _folders(project_dir / "runs"):
            try:
                found += _of_run(Workspace(project_dir, folder.name), ledgers)
            except GatewrightError as error:
                busy.append(Busy(folder.name, error.message))
    for folder in _folders(project_dir / "ungated"):
        found.append(_candidate(project_dir, "a stage that ran by itself", None, folder))
    old = [c for c in found if now - c.newest >= (max(age, IN_FLIGHT) if c.rule == UNNAMED else age)]
    return Findings(sorted(old, key=lambda c: (c.newest, c.path)), busy, _size(project_dir)[1])


class _Ledgers(ExitStack):
    """The ledgers of a project's runs, each opened once."""

    def __init__(self, project_dir: Path, spec: Project) -> None:
        super().__init__()
        self._named = ledger_url(project_dir, spec)
        self._open: dict[str, Ledger] = {}

    def of(self, workspace: Workspace) -> Ledger:
        """The ledger that a run began with; the project's for a folder without a spec."""
        place = ledger_of_frozen(workspace) if (workspace.folder / "spec.json").is_file() else self._named
        if str(place) not in self._open:
            self._open[str(place)] = Ledger.open(place)
            self.callback(self._open[str(place)].close)
        return self._open[str(place)]

    def knows(self, workspace: Workspace) -> bool:
        """Whether a run is recorded. Raises `GatewrightError` while a process works on it."""
        ledger = self.of(workspace)
        if not ledger.knows(workspace.run):
            return False
        held = ledger.lease_holder(workspace.run)
        if held is not None and held[1]:
            raise GatewrightError(f"{held[0]} works on it")
        return True

    def state(self, workspace: Workspace) -> RunState:
        """The run as its events say."""
        return fold(self.of(workspace).events(workspace.run))


def _of_run(workspace: Workspace, ledgers: _Ledgers) -> list[Candidate]:
    root, run = workspace.project_dir, workspace.run
    if not ledgers.knows(workspace):
        names = {p.name.removesuffix(".part") for p in workspace.folder.iterdir()}
        only_frozen = names <= _FROZEN
        return [_candidate(root, "a run that was never recorded", run, workspace.folder)] if only_frozen else []
    left = workspace.folder.glob("[0-9]*/*.partial-left-*")
    found = [_candidate(root, "an attempt that was left behind", run, path) for path in sorted(left)]
    parts = [p for pattern in ("*.part", "gates/**/*.part", "proposals/*.part") for p in workspace.folder.glob(pattern)]
    found += [_candidate(root, "half of a file", run, path) for path in sorted(parts)]
    found += _unnamed(workspace, ledgers)
    halves = sorted([*workspace.folder.glob("[0-9]*/*.partial"), *workspace.folder.glob("release.partial")])
    checkpoints = [p for p in _folders(workspace.folder / "checkpoints") if any(f.is_file() for f in p.rglob("*"))]
    if not halves and not checkpoints:
        return found
    state = ledgers.state(workspace)
    if state.terminal:
        found += [_candidate(root, "half of something, of a run that has ended", run, path) for path in halves]
    return found + _spent(workspace, state, checkpoints)


def _unnamed(workspace: Workspace, ledgers: _Ledgers) -> list[Candidate]:
    """Proposals, transcripts and edited gates, each under its digest, that no event names: a decision that failed
    after it stored them, or a crash in between."""
    files = [p for pattern in _DOCUMENTS for p in workspace.folder.glob(pattern)]
    own = [p for p in files if p.resolve() == workspace.folder.resolve() / p.relative_to(workspace.folder)]
    if not own:
        return []
    rows = stored_rows(ledgers.of(workspace), workspace.run, _NAMING)
    named = {digest.decode() for row in rows for digest in _DIGEST.findall(row.body)}
    return [_candidate(workspace.project_dir, UNNAMED, workspace.run, p) for p in sorted(own) if p.stem not in named]


def _spent(workspace: Workspace, state: RunState, folders: list[Path]) -> list[Candidate]:
    """Checkpoints that no resume can need: of ended runs, and of attempts that are published or superseded."""
    found = []
    for folder in folders:
        stage, _, number = folder.name.rpartition("-")
        attempt = next((a for a in state.attempts.get(stage, []) if f"{a.number:03d}" == number), None)
        over = attempt is not None and attempt.state in ("published", "superseded")
        if (state.terminal or over) and not any(folder.rglob("*.pin")):
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
