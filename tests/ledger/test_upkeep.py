"""What happens to files after a run has ended is recorded too, in a chain that nobody can rewrite."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flows.ledger import Ledger
from flows.ledger.chain import verify_chain
from flows.ledger.upkeep import chain_of, record_upkeep, stored_upkeep, upkeep_of
from specs.errors import InputError
from specs.events import FilesDeleted, RunFinished

DELETED = FilesDeleted(rule="left over", run="r1", paths=["runs/r1/01-data/001.partial-left-1"], files=3, bytes=12)


def test_entries_are_chained_per_project_and_recorded_after_the_end_of_a_run(ledger: Ledger):
    ledger.append("r1", RunFinished(), "gatewright")
    for _ in range(3):
        record_upkeep(ledger, "demo", DELETED, "me")
    record_upkeep(ledger, "other", DELETED, "me")
    entries = upkeep_of(ledger, "demo")
    assert [e.sequence for e in entries] == [1, 2, 3]
    assert entries[0].read() == DELETED
    assert verify_chain(chain_of("demo"), stored_upkeep(ledger, "demo")) == []
    assert len(upkeep_of(ledger, "other")) == 1
    assert len(ledger.events("r1")) == 2


def test_writers_at_once_leave_one_chain_without_a_gap(ledger: Ledger):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: record_upkeep(ledger, "demo", DELETED, f"person{number}"), range(24)))
    assert verify_chain(chain_of("demo"), stored_upkeep(ledger, "demo")) == []
    assert len(upkeep_of(ledger, "demo")) == 24


def test_the_database_refuses_to_change_it(ledger: Ledger, database: Path):
    record_upkeep(ledger, "demo", DELETED, "me")
    connection = sqlite3.connect(database)
    for change in ("UPDATE upkeep SET actor = 'x'", "DELETE FROM upkeep"):
        with pytest.raises(sqlite3.IntegrityError, match="upkeep is append-only"):
            connection.execute(change)
    connection.close()


def test_an_entry_has_an_actor(ledger: Ledger):
    with pytest.raises(InputError, match="actor"):
        record_upkeep(ledger, "demo", DELETED, " ")
