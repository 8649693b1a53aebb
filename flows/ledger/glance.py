"""A SQLite ledger read by Python's own driver: for commands that only look, which start in half the time so.

Only a ledger whose tables are at this version is read so; for every other one the whole ledger is opened.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Any

from flows.ledger.chain import Stored, opened
from flows.ledger.rows import HEAD, RunRow, run_row
from specs.errors import InputError
from specs.events import Event

_NEWEST = " ORDER BY created_at DESC, run DESC"


class Glance:
    """Reads runs and events; `place` is the file. It answers as `Ledger` does."""

    def __init__(self, place: Path, connection: sqlite3.Connection) -> None:
        self.place = place
        self._connection = connection

    def close(self) -> None:
        """Give the file back."""
        self._connection.close()

    def runs(
        self, project: str | None = None, *, states: Collection[str] | None = None, limit: int | None = None
    ) -> list[RunRow]:
        """The runs, newest first; of one project or of all, in some states, the newest `limit` of them."""
        wheres: list[str] = []
        values: list[Any] = []
        if project is not None:
            wheres.append("project = ?")
            values.append(project)
        if states is not None:
            wheres.append(f"state IN ({', '.join('?' * len(states))})")
            values.extend(states)
        where = f" WHERE {' AND '.join(wheres)}" if wheres else ""
        limited = " LIMIT ?" if limit is not None else ""
        values += [limit] if limit is not None else []
        rows = self._connection.execute(f"SELECT * FROM runs{where}{_NEWEST}{limited}", values)
        return [run_row(row) for row in rows]

    def knows(self, run: str) -> bool:
        """Whether this ledger records a run."""
        return self._connection.execute("SELECT 1 FROM runs WHERE run = ?", (run,)).fetchone() is not None

    def run(self, run: str) -> RunRow:
        """One run. Raises `InputError` for a run that this ledger does not know."""
        row = self._connection.execute("SELECT * FROM runs WHERE run = ?", (run,)).fetchone()
        if row is None:
            raise InputError(f"there is no run {run!r} in this ledger", "`gatewright runs` lists the runs")
        return run_row(row)

    def events(self, run: str) -> list[Event]:
        """Every event of a run in order."""
        rows = self._connection.execute("SELECT * FROM events WHERE run = ? ORDER BY sequence", (run,))
        return [
            opened(Stored(r["run"], r["sequence"], r["kind"], r["actor"], r["at"], bytes(r["body"]), r["hash"]))
            for r in rows
        ]


def glance(place: Path) -> Glance | None:
    """A SQLite ledger opened for looking only; None when it is not at this version or must be opened wholly."""
    try:
        connection = sqlite3.connect(f"{place.absolute().as_uri()}?mode=ro", uri=True, timeout=10)
        connection.row_factory = sqlite3.Row
        version = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error:
        return None  # the whole ledger says what is wrong with it
    if version is None or version[0] != HEAD:
        connection.close()
        return None
    return Glance(place, connection)
