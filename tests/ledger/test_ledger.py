"""The ledger appends, numbers, chains, refuses to forget, and says in words what it refuses."""

from __future__ import annotations

import json
import os
import sqlite3
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

import flows.ledger
from flows.ledger import Ledger, schema
from flows.ledger.chain import genesis, timestamp, verify_chain
from flows.state import fold
from specs.canonical import canonical_bytes, sha256_bytes
from specs.decisions import Decision
from specs.errors import InputError, Refused, RunOpen, StorageError
from specs.events import (
    FallbackTaken,
    GateOpened,
    LeaseTaken,
    ProposalMade,
    RunFinished,
    RunStopped,
    VerdictsRecorded,
)
from tests.support.ledgers import SHA, created


def noted(what: str) -> FallbackTaken:
    return FallbackTaken(stage="data", what=what, why="test", instead="nothing")


def test_events_are_numbered_without_a_gap_and_chained_over_their_stored_bytes(ledger: Ledger):
    for number in range(5):
        ledger.append("r1", noted(f"n{number}"), "gatewright")
    events, rows = ledger.events("r1"), ledger.stored("r1")
    assert [e.sequence for e in events] == [1, 2, 3, 4, 5, 6]
    assert events[0].previous == genesis("r1")
    assert [e.previous for e in events[1:]] == [e.hash for e in events[:-1]]
    assert all(sha256_bytes(row.body) == row.hash == event.hash for row, event in zip(rows, events, strict=True))
    assert all(canonical_bytes(json.loads(row.body)) == row.body for row in rows)
    assert ledger.head("r1") == events[-1].hash
    assert verify_chain("r1", rows) == []


def test_the_chain_of_one_run_does_not_verify_as_another_run(ledger: Ledger):
    assert {fault.kind for fault in verify_chain("r2", ledger.stored("r1"))} == {"link", "column"}


def test_several_events_are_recorded_together_or_not_at_all(ledger: Ledger):
    with pytest.raises(Refused):
        ledger.append_all("r1", [RunFinished(), noted("after the end")], "gatewright")
    assert [e.kind for e in ledger.events("r1")] == ["run.created"]
    ledger.append_all("r1", [noted("one"), noted("two")], "gatewright")
    assert len(ledger.events("r1")) == 3


def test_nothing_is_appended_after_the_terminal_event(ledger: Ledger):
    ledger.append("r1", RunFinished(), "gatewright")
    for attempt in (
        lambda: ledger.append("r1", noted("late"), "gatewright"),
        lambda: ledger.take_lease("r1"),
        lambda: ledger.open_gate("r1", GateOpened(gate="data", round=1, digest=SHA, blocked=False)),
    ):
        with pytest.raises(Refused, match="has ended"):
            attempt()
    assert len(ledger.events("r1")) == 2


@pytest.mark.parametrize("table", ["events", "gates", "decisions"])
@pytest.mark.parametrize("change", ["UPDATE {} SET run = 'other'", "DELETE FROM {}"])
def test_the_database_itself_refuses_to_change_what_was_appended(
    ledger: Ledger, database: Path, table: str, change: str
):
    ledger.open_gate("r1", GateOpened(gate="data", round=1, digest=SHA, blocked=False))
    decision = Decision(
        run="r1", gate="data", round=1, digest=SHA, choice="approve", actor="me", authentication="terminal"
    )
    ledger.record_decision(decision, "me")
    connection = sqlite3.connect(database)
    with pytest.raises(sqlite3.IntegrityError, match=f"{table} is append-only"):
        connection.execute(change.format(table))
    connection.close()
    assert len(ledger.events("r1")) == 3


def test_events_with_a_method_of_their_own_cannot_be_slipped_in(ledger: Ledger):
    decision = Decision(
        run="r1", gate="data", round=1, digest=SHA, choice="approve", actor="me", authentication="terminal"
    )
    for payload in (
        created(),
        GateOpened(gate="data", round=1, digest=SHA, blocked=False),
        LeaseTaken(fence=9, owner="x"),
        flows.ledger.store.DecisionRecorded(decision=decision),
    ):
        with pytest.raises(TypeError):
            ledger.append("r1", payload, "gatewright")


def test_a_project_has_one_open_run(ledger: Ledger, database: Path):
    with pytest.raises(RunOpen, match=r"demo has an open run: r1 \(running\)"):
        ledger.create_run("r2", created(), database.parent, "me")
    ledger.create_run("r3", created("other"), database.parent, "me")
    ledger.append("r1", RunFinished(), "gatewright")
    ledger.create_run("r2", created(), database.parent, "me")
    with pytest.raises(RunOpen, match="r2 exists already"):
        ledger.create_run("r2", created("third"), database.parent, "me")
    assert {(row.run, row.state) for row in ledger.runs("demo")} == {("r1", "finished"), ("r2", "running")}


def test_a_refused_run_leaves_nothing_behind(ledger: Ledger, database: Path):
    with pytest.raises(RunOpen):
        ledger.create_run("r2", created(), database.parent, "me")
    with pytest.raises(InputError, match="no run 'r2'"):
        ledger.events("r2")


def test_runs_are_listed_newest_first_with_their_folder(database: Path):
    at = datetime(2026, 5, 1, tzinfo=UTC)
    ledger = Ledger.open(database, clock=lambda: at)
    for number in range(3):
        at += timedelta(microseconds=1)
        ledger.create_run(f"r{number}", created(f"p{number}"), database.parent, "me")
    rows = ledger.runs()
    assert [row.run for row in rows] == ["r2", "r1", "r0"]
    assert rows[0].created_at == at
    assert rows[0].project_dir == database.parent
    ledger.close()


def test_no_event_holds_the_place_of_the_project(ledger: Ledger, database: Path):
    ledger.take_lease("r1")
    assert all(str(database.parent).encode() not in row.body for row in ledger.stored("r1"))


def test_the_listed_state_is_the_state_of_the_events(ledger: Ledger):
    proposal = ProposalMade(gate="data", round=1, proposal=SHA, proposer="rules")
    for payload in (
        proposal,
        VerdictsRecorded(stage="data", attempt=1, verdicts=[]),
        RunStopped(stage="data", reason=""),
    ):
        ledger.append("r1", payload, "gatewright")
        row, state = ledger.run("r1"), fold(ledger.events("r1"))
        assert (row.state, row.stage) == (state.state, state.stage)
    ledger.take_lease("r1")
    assert ledger.run("r1").state == fold(ledger.events("r1")).state == "running"


def test_times_are_utc_with_microseconds_and_sort_as_text():
    at = datetime(2026, 1, 1, 1, 0, tzinfo=timezone(timedelta(hours=8)))
    assert timestamp(at) == "2025-12-31T17:00:00.000000Z"
    assert timestamp(at) < timestamp(at + timedelta(microseconds=1))


def test_strings_are_normalised_before_they_are_hashed(ledger: Ledger):
    event = ledger.append("r1", noted("Werkzeughalter gefu\u0308hrt"), "gatewright")
    assert event.payload["what"] == "Werkzeughalter gef\u00fchrt"


def test_opening_again_keeps_everything(ledger: Ledger, database: Path):
    ledger.close()
    again = Ledger.open(str(database))
    assert [row.run for row in again.runs()] == ["r1"]
    with again.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    again.close()


def test_the_migrations_lead_to_the_tables_that_the_code_uses(ledger: Ledger):
    config = Config()
    config.set_main_option("script_location", str(Path(flows.ledger.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_heads() == [schema.HEAD]
    with ledger.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
        indexes = {index["name"] for index in inspect(connection).get_indexes("runs")}
    assert indexes == {"runs_by_project", "runs_by_state", "one_open_run_per_project"}


def test_a_ledger_of_a_newer_version_is_left_alone(ledger: Ledger, database: Path):
    ledger.close()
    connection = sqlite3.connect(database)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    with pytest.raises(StorageError, match="newer Gatewright"):
        Ledger.open(database)


def test_a_file_that_is_no_database_is_named(tmp_path: Path):
    path = tmp_path / "gatewright.db"
    path.write_bytes(b"this is no database, and long enough to be looked at" * 100)
    with pytest.raises(StorageError, match=r"gatewright\.db is damaged"):
        Ledger.open(path)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a user whom permissions bind")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError):
        Ledger.open(tmp_path / "below" / "gatewright.db")


def test_a_full_disk_is_said_and_loses_nothing(ledger: Ledger):
    with ledger.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    ledger.close()

    from sqlalchemy import event

    event.listen(ledger.engine, "connect", lambda c, _: c.execute(f"PRAGMA max_page_count = {pages + 2}"))
    many = [noted(f"{number} " + "long text " * 100) for number in range(200)]
    ledger.append_all("r1", many[:1], "gatewright")
    with pytest.raises(StorageError, match="no space left"):
        ledger.append_all("r1", many, "gatewright")
    rows = ledger.stored("r1")
    assert len(rows) == 2
    assert verify_chain("r1", rows) == []
    assert ledger.head("r1") == rows[-1].hash


@pytest.mark.parametrize("url", ["nonsense://secret-word@host/db", "mysql://me:secret-word@host/db", "postgresql://"])
def test_a_url_that_cannot_be_used_is_refused_without_showing_its_password(url: str):
    with pytest.raises((InputError, StorageError)) as caught:
        Ledger.open(url)
    assert "secret-word" not in caught.value.message + caught.value.hint


def test_an_unknown_run_is_said_with_those_that_are_known(ledger: Ledger):
    with pytest.raises(InputError) as caught:
        ledger.append("r9", noted("x"), "gatewright")
    assert "r1" in caught.value.hint


def test_an_event_has_an_actor(ledger: Ledger):
    with pytest.raises(InputError, match="actor"):
        ledger.append("r1", noted("x"), "  ")
