"""The ledger: append-only, hash-chained record of every run, in SQLite or PostgreSQL. It decides; Prefect mirrors.

Its names are loaded when they are asked for: whoever only looks (`flows.ledger.glance`) does not load SQLAlchemy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.ledger.lease import Lease, Owner
    from flows.ledger.rows import RunRow
    from flows.ledger.store import Ledger

__all__ = ["Lease", "Ledger", "Owner", "RunRow"]

_PLACES = {"Lease": "lease", "Owner": "lease", "Ledger": "store", "RunRow": "rows"}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
