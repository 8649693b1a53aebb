"""What an audit works on: the chain as it was followed, the events that matter, the tables beside, the run's files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from sqlalchemy import select

from flows.audit.files import RunFiles
from flows.folding import advance
from flows.gatefiles import attempt_folder
from flows.ledger import Ledger
from flows.ledger.chain import ChainCheck, Fault, Stored, as_stored, opened
from flows.ledger.engine import reading
from flows.ledger.schema import events as events_table
from flows.ledger.upkeep import chain_of, stored_upkeep
from flows.run_state import RunState
from specs.events import (
    PAYLOADS,
    TERMINAL_KINDS,
    AttemptPublished,
    DataRemoved,
    DecisionRecorded,
    Event,
    InputsHashed,
    Payload,
    RunCreated,
)
from specs.metrics import STAGES
from specs.policy import Policy, read_frozen
from specs.project import Project
from specs.results import Evidence
from specs.stage_graph import RELEASE, stage_name_problem

P = TypeVar("P", bound=Payload)

BULK = frozenset(
    {"checkpoint.saved", "fallback.taken", "inputs.hashed", "lease.taken", "prefect.attached", "run.stopped"}
)
"""Kinds that no right to decide rests on. An audit checks each of them while it streams and keeps none of them."""

_STILL = frozenset({"checkpoint.saved", "fallback.taken", "inputs.hashed"})
"""Bulk kinds that leave the state of a run as it is."""

_FIELDS = frozenset(Event.model_fields) - {"hash"}
_TIME = re.compile(r"\d{4}-(0[1-9]|1[0-2])-([01]\d|2\d)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}Z")
_PLACES = {
    kind: tuple(name for name in ("stage", "gate") if name in model.model_fields) for kind, model in PAYLOADS.items()
}

KEPT_OF_A_BULK_KIND = 1000
"""How many events of a bulk kind are kept for whoever asked for it; `History.kinds` counts them all."""

_KEPT_FAULTS = 1000
_ROWS_AT_ONCE = 5000


@dataclass
class ChainReport:
    """What following the chain gave; faults past the first thousand are counted only."""

    count: int = 0
    head: str = ""
    faults: list[Fault] = field(default_factory=list)
    more_faults: int = 0
    backwards: int = 0
    ends: list[int] = field(default_factory=list)
    anchored: str | None = None
    last_at: str = ""

    def see(self, row: Stored, position: int, faults: list[Fault], anchored_at: int) -> None:
        """Take in one row, the `position`-th that is there."""
        self.count, self.head = position, row.hash
        self.backwards += row.at < self.last_at
        self.last_at = row.at
        if row.kind in TERMINAL_KINDS:
            self.ends.append(position)
        if position == anchored_at:
            self.anchored = row.hash
        room = max(0, _KEPT_FAULTS - len(self.faults))
        self.faults += faults[:room]
        self.more_faults += len(faults[room:])


@dataclass
class InputsWatch:
    """Whether the inputs of an attempt are the same before it ran and after."""

    before: dict[tuple[str, int], dict[str, str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def see(self, sequence: int, hashed: InputsHashed) -> None:
        """Take in one record of hashed inputs."""
        key = (hashed.stage, hashed.attempt)
        if hashed.moment == "before":
            self.before[key] = hashed.inputs
        elif self.before.get(key) != hashed.inputs:
            self.faults.append(f"event {sequence}: inputs of {hashed.stage} {hashed.attempt} changed while it ran")


@dataclass
class History:
    """One run, read once. `events` and `payloads` hold every event but those of a bulk kind (unless asked for).

    `beside` is None where no database was read. `anchored_at` is the event whose hash the chain report keeps.
    """

    run: str
    files: RunFiles
    beside: dict[str, list[dict[str, Any]]] | None = None
    keep: frozenset[str] = frozenset()
    anchored_at: int = 0
    chain: ChainReport = field(default_factory=ChainReport)
    inputs: InputsWatch = field(default_factory=InputsWatch)
    events: list[Event] = field(default_factory=list)
    payloads: list[Payload] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    state: RunState = field(default_factory=RunState)
    upkeep: list[str] = field(default_factory=list)
    _evidence: dict[tuple[str, int], Evidence | None] = field(default_factory=dict, repr=False)

    @property
    def run_dir(self) -> Path:
        """Where the files that can be opened lie."""
        return self.files.folder

    def follow(self, rows: Iterable[Stored]) -> None:
        """Read the rows in order. What cannot be read is kept as a finding, not raised."""
        check = ChainCheck(self.run)
        for position, row in enumerate(rows, start=1):
            fields, faults = check.see(row)
            self.chain.see(row, position, faults, self.anchored_at)
            self.kinds[row.kind] += 1
            try:
                if fields is None:
                    raise ValueError("the stored bytes are no event")
                self._take(row, fields)
            except (ValidationError, ValueError, TypeError) as error:
                why = str(error) if type(error) is ValueError else type(error).__name__
                if len(self.unreadable) < _KEPT_FAULTS:
                    self.unreadable.append(f"event {row.sequence} ({row.kind}): {why}")

    def follow_upkeep(self, rows: Iterable[Stored]) -> None:
        """Read the chain of the run's project, after the run's own: which files were removed on request.

        What is wrong with the chain is kept in `upkeep`; a chain with faults excuses nothing.
        """
        project = self.state.created.project if self.state.created else ""
        check, removed = ChainCheck(chain_of(project)), {}
        for row in rows:
            _, faults = check.see(row)
            self.upkeep += [f"entry {fault.sequence}: {fault.what}" for fault in faults][:_KEPT_FAULTS]
            try:
                payload = opened(row).read()
            except (ValidationError, ValueError, TypeError):
                self.upkeep.append(f"entry {row.sequence} cannot be read")
                continue
            if isinstance(payload, DataRemoved) and payload.run == self.run:
                removed.update({file.path: (file.sha256, payload.reason) for file in payload.files})
        if not self.upkeep:
            self.files.removed.update(removed)

    def _take(self, row: Stored, fields: dict[str, Any]) -> None:
        """Read one event and keep it, unless its kind is a bulk kind that nobody asked for."""
        wanted = row.kind in self.keep and self.kinds[row.kind] <= KEPT_OF_A_BULK_KIND
        if row.kind in _STILL and not wanted and _plainly_an_event(row, fields):
            payload = PAYLOADS[row.kind].model_validate(fields["payload"])
            _known(row.kind, payload, self.state)
            self.state.sequence, self.state.head = row.sequence, row.hash
            if isinstance(payload, InputsHashed):
                self.inputs.see(row.sequence, payload)
            return
        event = Event.model_validate({**fields, "hash": row.hash})
        payload = event.read()
        _known(event.kind, payload, self.state)
        advance(self.state, event, payload)
        if isinstance(payload, InputsHashed):
            self.inputs.see(event.sequence, payload)
        if event.kind not in BULK or (event.kind in self.keep and self.kinds[event.kind] <= KEPT_OF_A_BULK_KIND):
            self.events.append(event)
            self.payloads.append(payload)

    def of(self, kind: type[P]) -> Iterator[tuple[Event, P]]:
        """The kept events of one kind with their payloads, in order."""
        for event, payload in zip(self.events, self.payloads, strict=True):
            if isinstance(payload, kind):
                yield event, payload

    def published(self) -> dict[tuple[str, int], AttemptPublished]:
        """Every published attempt by (stage, number)."""
        return {(p.stage, p.attempt): p for _, p in self.of(AttemptPublished)}

    def evidence(self, stage: str, attempt: int) -> Evidence | None:
        """The evidence of an attempt as it lies there; None where it cannot be read. It is read once."""
        if (stage, attempt) not in self._evidence:
            try:
                path = attempt_folder(self.run_dir, stage, attempt) / "evidence.json"
                self._evidence[stage, attempt] = Evidence.model_validate_json(path.read_bytes())
            except (OSError, ValueError):
                self._evidence[stage, attempt] = None
        return self._evidence[stage, attempt]

    def policy(self) -> Policy | None:
        """The frozen policy as it lies there; None where it cannot be read."""
        try:
            return read_frozen((self.run_dir / "policy.json").read_bytes())
        except (OSError, ValueError):
            return None

    @cached_property
    def spec(self) -> Project | None:
        """The frozen spec as it lies there, for what things are called; None where it cannot be read. Read once."""
        try:
            return Project.model_validate_json((self.run_dir / "spec.json").read_bytes())
        except (OSError, ValueError):
            return None


def read_history(
    ledger: Ledger, run: str, run_dir: Path, *, anchored_at: int = 0, keep: frozenset[str] = frozenset()
) -> History:
    """Read everything an audit needs of a run in a ledger, in one pass. Raises `InputError` for an unknown run."""
    if not ledger.knows(run):
        ledger.run(run)
    history = History(run, RunFiles(run_dir), ledger.rows_beside(run), keep, anchored_at)
    history.follow(stored_rows(ledger, run))
    project = history.state.created.project if history.state.created else ""
    history.follow_upkeep(stored_upkeep(ledger, project))
    return history


def stored_rows(
    ledger: Ledger, run: str, kinds: frozenset[str] = frozenset(), last: int | None = None
) -> Iterator[Stored]:
    """The rows of a run's events as they are stored, a few at a time: a million of them need no memory.

    Only those of some kinds, and only the `last` few, when asked for.
    """
    query = select(*(events_table.c[name] for name in Stored.__dataclass_fields__)).where(events_table.c.run == run)
    if kinds:
        query = query.where(events_table.c.kind.in_(kinds))
    if last is not None:
        query = query.order_by(events_table.c.sequence.desc()).limit(last).subquery().select()
    with reading(ledger.engine) as connection:
        rows = connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(query.order_by("sequence"))
        for row in rows:
            yield as_stored(*row)


def _plainly_an_event(row: Stored, fields: dict[str, Any]) -> bool:
    """Whether the fields need no model to be an event: the cheap test for the many. Whatever fails it is modelled."""
    return (
        fields.keys() == _FIELDS
        and (fields["kind"], fields["at"], fields["sequence"]) == (row.kind, row.at, row.sequence)
        and type(fields["sequence"]) is int
        and isinstance(fields["actor"], str)
        and isinstance(fields["run"], str)
        and isinstance(fields["previous"], str)
        and _TIME.fullmatch(row.at) is not None
    )


def _known(kind: str, payload: Payload, state: RunState) -> None:
    """Raises `ValueError` for a stage or gate that names no folder of the run."""
    stages = payload.stages if isinstance(payload, RunCreated) else []
    if wrong := next((s for s in stages if s not in STAGES and stage_name_problem(s)), None):
        raise ValueError(f"{wrong!r} is no stage")
    if isinstance(payload, DecisionRecorded):
        named: tuple[tuple[str, str | None], ...] = (
            ("gate", payload.decision.gate),
            ("stage", payload.decision.rework_stage),
        )
    else:
        named = tuple((place, getattr(payload, place)) for place in _PLACES.get(kind, ()))
    for place, name in named:
        if name is not None and name not in (state.order if state.created else (*STAGES, RELEASE)):
            raise ValueError(f"{name!r} is no {place}")
