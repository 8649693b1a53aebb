"""The hash chain: each event's stored bytes name the hash of the one before. Pure functions over stored bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic_core import from_json

from specs.canonical import canonical_bytes, sha256_bytes
from specs.events import Event

FaultKind = Literal["hash", "link", "gap", "column", "unreadable"]
_COLUMNS = ("run", "sequence", "kind", "actor", "at")


@dataclass(frozen=True)
class Stored:
    """A row of `events`: `body` is what is hashed, the other fields repeat parts of it for the database."""

    run: str
    sequence: int
    kind: str
    actor: str
    at: str
    body: bytes
    hash: str


@dataclass(frozen=True)
class Fault:
    """Something wrong with one event of a chain."""

    sequence: int
    kind: FaultKind
    what: str


def as_stored(
    run: object, sequence: object, kind: object, actor: object, at: object, body: object, hash: object
) -> Stored:
    """A row as a database gave it. SQLite keeps whatever somebody puts into a column; here each has its own type."""
    if isinstance(body, str):
        body = body.encode()
    data = bytes(body) if isinstance(body, bytes | bytearray | memoryview) else b""
    number = sequence if type(sequence) is int else 0
    return Stored(str(run), number, str(kind), str(actor), str(at), data, str(hash))


def timestamp(at: datetime) -> str:
    """UTC with microseconds and `Z`, always the same width, so that text order is time order."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def genesis(run: str) -> str:
    """What the first event of a run names as the one before: binds the chain to the run's id."""
    return sha256_bytes(f"gatewright run {run}".encode())


def seal(
    run: str, sequence: int, kind: str, actor: str, at: datetime, payload: Mapping[str, Any], previous: str
) -> Stored:
    """The row of an event: canonical bytes of all its fields but the hash, and their SHA-256."""
    when = timestamp(at)
    body = canonical_bytes(
        {
            "run": run,
            "sequence": sequence,
            "kind": kind,
            "actor": actor,
            "at": when,
            "payload": dict(payload),
            "previous": previous,
        }
    )
    fields = json.loads(body)
    return Stored(fields["run"], sequence, kind, fields["actor"], when, body, sha256_bytes(body))


def opened(stored: Stored) -> Event:
    """The event in a row, read from its hashed bytes. Raises `ValueError` where they are no event."""
    return Event.model_validate({**from_json(stored.body), "hash": stored.hash})


class ChainCheck:
    """Follows the rows of one run, given in order of sequence. No fault means: self-consistent."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.expected = 1
        self.previous = genesis(run)

    def see(self, row: Stored) -> tuple[dict[str, Any] | None, list[Fault]]:
        """The hashed fields of the next row, None where they cannot be read, and what is wrong with it."""
        faults: list[Fault] = []
        if row.sequence != self.expected:
            faults.append(Fault(row.sequence, "gap", f"expected event {self.expected}, found {row.sequence}"))
        if sha256_bytes(row.body) != row.hash:
            faults.append(Fault(row.sequence, "hash", "the stored bytes do not hash to the recorded hash"))
        try:
            fields = from_json(row.body)
            named = fields["previous"]
            get = fields.get
            repeated = (get("run"), get("sequence"), get("kind"), get("actor"), get("at"))
        except (ValueError, KeyError, TypeError, AttributeError):
            fields = None
            faults.append(Fault(row.sequence, "unreadable", "the stored bytes are no event"))
        else:
            if named != self.previous:
                faults.append(Fault(row.sequence, "link", "it does not name the event before it"))
            said = (row.run, row.sequence, row.kind, row.actor, row.at)
            if repeated != said:
                faults += [
                    Fault(row.sequence, "column", f"column {column} says {one!r}, the hashed bytes {other!r}")
                    for column, one, other in zip(_COLUMNS, said, repeated, strict=True)
                    if one != other
                ]
            if row.run != self.run:
                faults.append(Fault(row.sequence, "column", f"it belongs to run {row.run!r}"))
        self.previous, self.expected = row.hash, row.sequence + 1
        return fields, faults


def verify_chain(run: str, rows: Iterable[Stored]) -> list[Fault]:
    """Every fault of a run's rows, given in order of sequence."""
    check = ChainCheck(run)
    return [fault for row in rows for fault in check.see(row)[1]]
