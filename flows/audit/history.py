"""What an audit works on: the rows as stored, the events that can be read, the tables beside, the run's folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from flows.folding import RunState, fold
from flows.gatefiles import attempt_folder
from flows.ledger import Ledger
from flows.ledger.chain import Stored, opened
from flows.workspace import GATES
from specs.events import AttemptPublished, DecisionRecorded, Event, Payload
from specs.policy import Policy
from specs.results import Evidence

P = TypeVar("P", bound=Payload)


@dataclass(frozen=True)
class History:
    """One run, read once."""

    run: str
    run_dir: Path
    rows: list[Stored]
    events: list[Event]
    payloads: list[Payload]
    unreadable: list[str]
    beside: dict[str, list[dict[str, Any]]]
    state: RunState

    def of(self, kind: type[P]) -> Iterator[tuple[Event, P]]:
        """The events of one kind with their payloads, in order."""
        for event, payload in zip(self.events, self.payloads, strict=True):
            if isinstance(payload, kind):
                yield event, payload

    def published(self) -> dict[tuple[str, int], AttemptPublished]:
        """Every published attempt by (stage, number)."""
        return {(p.stage, p.attempt): p for _, p in self.of(AttemptPublished)}

    def evidence(self, stage: str, attempt: int) -> Evidence | None:
        """The evidence of an attempt as it lies on disk; None where it cannot be read."""
        try:
            path = attempt_folder(self.run_dir, stage, attempt) / "evidence.json"
            return Evidence.model_validate_json(path.read_bytes())
        except (OSError, ValueError):
            return None

    def policy(self) -> Policy | None:
        """The frozen policy as it lies on disk; None where it cannot be read."""
        try:
            return Policy.model_validate_json((self.run_dir / "policy.json").read_bytes())
        except (OSError, ValueError):
            return None


def read_history(ledger: Ledger, run: str, run_dir: Path) -> History:
    """Read everything an audit needs. What cannot be read is kept as a finding, not raised."""
    rows = ledger.stored(run)
    events, payloads, unreadable = [], [], []
    for row in rows:
        try:
            event = opened(row)
            payload = event.read()
            _known(payload)
        except (ValidationError, ValueError, TypeError) as error:
            why = str(error) if type(error) is ValueError else type(error).__name__
            unreadable.append(f"event {row.sequence} ({row.kind}): {why}")
        else:
            events.append(event)
            payloads.append(payload)
    return History(run, run_dir, rows, events, payloads, unreadable, ledger.rows_beside(run), fold(events))


def _known(payload: Payload) -> None:
    """Raises `ValueError` for a stage or gate that names no folder."""
    decision = payload.decision if isinstance(payload, DecisionRecorded) else payload
    for field in ("stage", "gate"):
        name = getattr(decision, field, None)
        if name is not None and name not in GATES:
            raise ValueError(f"{name!r} is no {field}")
