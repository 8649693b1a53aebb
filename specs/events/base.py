"""What every payload of an event has."""

from __future__ import annotations

from typing import Any, ClassVar

from specs.base import Strict


class Payload(Strict):
    """Base of all payloads; `kind` is the event's name in the ledger."""

    kind: ClassVar[str]
    version: int = 1


class UnknownEvent(Payload):
    """An event of a kind this version does not know; kept, shown, never interpreted."""

    kind = "unknown"
    original_kind: str
    body: dict[str, Any]
