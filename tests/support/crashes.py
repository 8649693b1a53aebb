"""Kill a light run at a place, go on from what is left, and compare its end with that of an unharmed run."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from flows.audit import verify
from flows.ledger import Ledger
from flows.ledger.chain import verify_chain
from flows.ledgers import ledger_of_run
from flows.session import Session
from flows.workspace import Workspace
from specs.canonical import sha256_file
from tests.support import light_run
from tests.support.faults import Place, Watch, forked

KILLED = -9
INERT = {"lease.taken", "attempt.abandoned", "attempt.reserved", "inputs.hashed"}
"""Events that a crash may add or repeat; everything else is there exactly once."""

TIMED = "author.json"
"""Says when a person handed work in, which differs between any two runs."""


class Kind(Protocol):
    """A run to be killed: `light_run`, or `eventful_run` with everything in it that a run can write.

    `ORDERED`: whether a crash may not change the order of events; stages side by side may take turns.
    """

    ORDERED: bool

    def make_project(self, folder: Path, name: str, ledger: str | None) -> Path: ...

    def complete(self, project: Path, run: str) -> Session: ...


class Crashes:
    """Runs of one kind below one folder. `url` gives each its ledger: None for SQLite inside the project."""

    def __init__(
        self, folder: Path, url: Callable[[int], str | None] = lambda number: None, kind: Kind = light_run
    ) -> None:
        self.folder, self.url, self.kind = folder, url, kind
        self.number = 0
        self.passings: Counter[Place] = Counter()
        self.unharmed: dict[str, Any] = {}

    def find_places(self) -> list[Place]:
        """Every place that an unharmed run passes; its end is what every other run must come to."""
        project, run = self._project()
        found = self.folder / "places.json"

        def work() -> int:
            watch = Watch().install()
            ended = self.kind.complete(project, run).ending == "finished"
            found.write_text(json.dumps([[p.site, p.moment, n] for p, n in watch.seen.items()]))
            return 0 if ended else 1

        assert forked(work) == 0
        self.passings = Counter({Place(site, moment): n for site, moment, n in json.loads(found.read_text())})
        self.unharmed = self._outcome(Workspace(project, run))
        return list(self.passings)

    def kill_at(self, place: Place, passing: int = 1) -> list[str]:
        """What is wrong after a kill at the given passing of a place and going on; empty when nothing is."""
        project, run = self._project()
        workspace = Workspace(project, run)

        def until_killed() -> int:
            Watch(place, passing).install()
            self.kind.complete(project, run)
            return 0

        def go_on() -> int:
            return 0 if self.kind.complete(project, run).ending == "finished" else 1

        if (code := forked(until_killed)) != KILLED:
            return [f"was not killed, but ended with {code}"]
        if (code := forked(go_on)) != 0:
            return [f"the next process did not finish the run: {code}"]
        now = self._outcome(workspace)
        faults = [f"{key}: {_beside(now[key], value)}" for key, value in self.unharmed.items() if now[key] != value]
        faults += wrong(workspace)
        shutil.rmtree(project)
        return faults

    def _outcome(self, workspace: Workspace) -> dict[str, Any]:
        found = outcome(workspace)
        if not self.kind.ORDERED:  # where a run stopped to wait depends on what had its turn by then
            found["kinds"] = [kind for kind in found["kinds"] if kind != "run.waits"]
            return {key: sorted(v, key=json.dumps) if isinstance(v, list) else v for key, v in found.items()}
        return found

    def _project(self) -> tuple[Path, str]:
        self.number += 1
        name = f"p{self.number}"
        project = self.kind.make_project(self.folder / name, name, self.url(self.number))
        return project, f"r{self.number}"


def outcome(workspace: Workspace) -> dict[str, Any]:
    """What must be the same after any crash: decisions, gates, proposals, artifacts, verdicts, release, the end."""
    ledger = ledger_of_run(workspace)
    events = ledger.events(workspace.run)
    ledger.close()
    kept: dict[str, Any] = {"kinds": [e.kind for e in events if e.kind not in INERT]}
    for kind, fields in (
        ("decision.recorded", ("decision",)),
        ("gate.opened", ("gate", "round", "blocked")),
        ("proposal.made", ("gate", "round", "proposal")),
        ("attempt.published", ("stage", "attempt")),
        ("verdicts.recorded", ("stage", "attempt", "verdicts")),
    ):
        kept[kind] = [[_plain(e.payload[f]) for f in fields] for e in events if e.kind == kind]
    kept["files"] = {
        path.relative_to(workspace.folder).as_posix(): sha256_file(path)
        for pattern in ("*/[0-9][0-9][0-9]/artifacts/**/*", "proposals/*", "release/*")
        for path in sorted(workspace.folder.glob(pattern))
        if path.is_file() and path.name != TIMED
    }
    return kept


def _plain(value: Any) -> Any:
    """Without what differs between any two runs: the run's id, and the digest of evidence, which holds times."""
    return {k: v for k, v in value.items() if k not in ("run", "digest")} if isinstance(value, dict) else value


def _beside(now: Any, before: Any) -> str:
    """What one list or table holds and the other does not; all of both where only the order differs."""
    entries = [list(found.items()) if isinstance(found, dict) else found for found in (now, before)]
    held, expected = ([json.dumps(entry, sort_keys=True) for entry in found] for found in entries)
    more, less = (
        list((Counter(held) - Counter(expected)).elements()),
        list((Counter(expected) - Counter(held)).elements()),
    )
    return f"{more} more, {less} less" if more or less else f"{held} instead of {expected}"


def wrong(workspace: Workspace) -> list[str]:
    """Faults of the history itself: the chain, the audit, anything half-written that counts."""
    ledger: Ledger = ledger_of_run(workspace)
    faults = [f"event {f.sequence}: {f.what}" for f in verify_chain(workspace.run, ledger.stored(workspace.run))]
    report = verify(ledger, workspace.run, workspace.folder)
    ledger.close()
    for part in ("integrity", "completeness", "authority"):
        faults += [f"{part}: {s.check}: {s.detail}" for s in getattr(report, part).steps if s.ok is False]
    return faults
