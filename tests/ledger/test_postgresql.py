"""The same promises on a real PostgreSQL: `GATEWRIGHT_TEST_POSTGRESQL` names one, else a private one is started."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from flows.ledger import Ledger
from flows.ledger.chain import verify_chain
from specs.errors import LeaseHeld, RunOpen, StorageError
from specs.events import FallbackTaken, GateOpened, RunFinished
from tests.ledger.racers import race
from tests.support import postgresql
from tests.support.ledgers import SHA, created

pytestmark = pytest.mark.slow
NOTE = FallbackTaken(stage="data", what="x", why="test", instead="nothing")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """URL of a database server."""
    pytest.importorskip("psycopg")
    try:
        with postgresql.server() as url:
            yield url
    except postgresql.NoPostgresql as error:
        pytest.skip(str(error))


@pytest.fixture
def url(server: str) -> str:
    """The server with its database emptied."""
    return postgresql.emptied(server)


def test_it_appends_chains_and_refuses_to_forget(url: str, tmp_path: Path):
    ledger = Ledger.open(url)
    ledger.create_run("r1", created(), tmp_path, "me")
    with pytest.raises(RunOpen, match="r1"):
        ledger.create_run("r2", created(), tmp_path, "me")
    lease = ledger.take_lease("r1")
    newer = ledger.take_lease("r1")
    with pytest.raises(LeaseHeld):
        ledger.append("r1", NOTE, "gatewright", fence=lease.fence)
    ledger.append_all("r1", [NOTE, NOTE], "gatewright", fence=newer.fence)
    assert verify_chain("r1", ledger.stored("r1")) == []
    for statement in ("UPDATE events SET actor = 'x'", "DELETE FROM decisions", "TRUNCATE events"):
        if statement.startswith("DELETE"):
            continue  # no row yet: a row trigger has nothing to refuse
        with pytest.raises(DBAPIError, match="append-only"), ledger.engine.begin() as connection:
            connection.execute(text(statement))
    ledger.append("r1", RunFinished(), "gatewright")
    ledger.create_run("r2", created(), tmp_path, "me")
    assert [row.run for row in Ledger.open(url).runs("demo")] == ["r2", "r1"]
    assert abs((ledger.now() - ledger.events("r2")[0].at).total_seconds()) < 60
    ledger.close()


def test_of_eight_processes_that_decide_at_once_exactly_one_does(url: str, tmp_path: Path):
    ledger = Ledger.open(url)
    for round_ in range(5):
        ledger.create_run(f"r{round_}", created(f"p{round_}"), tmp_path, "me")
        ledger.open_gate(f"r{round_}", GateOpened(gate="data", round=1, digest=SHA, blocked=False))
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(8, mp_context=context) as pool:
        barrier = manager.Barrier(8)
        jobs = [pool.submit(race, url, barrier, number, 5) for number in range(8)]
        answers = [job.result(120) for job in jobs]
    for round_ in range(5):
        said = [answer[round_] for answer in answers]
        assert Counter(text_ == "won" for text_ in said) == {True: 1, False: 7}
        assert all("decided already" in text_ for text_ in said if text_ != "won")
        assert verify_chain(f"r{round_}", ledger.stored(f"r{round_}")) == []
    ledger.close()


def test_processes_that_open_an_empty_database_at_once_all_find_it_ready(url: str, tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, mp_context=context) as pool:
        assert [job.result(60) for job in [pool.submit(opened, url) for _ in range(4)]] == [0] * 4


def opened(url: str) -> int:
    """Open and count the runs."""
    return len(Ledger.open(url).runs())


def test_an_unreachable_server_is_said_without_its_password(tmp_path: Path):
    pytest.importorskip("psycopg")
    with pytest.raises(StorageError) as caught:
        Ledger.open(f"postgresql://tester:secret-word@/postgres?host={tmp_path}")
    assert "secret-word" not in caught.value.message + caught.value.hint
