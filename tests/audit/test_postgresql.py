"""An audit reads PostgreSQL as it reads SQLite: the same history verifies, and gives the same bundle byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from flows.audit import export, list_events, verify
from flows.ledger import Ledger
from tests.support import postgresql
from tests.support.run_maker import RunMaker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """An empty database."""
    pytest.importorskip("psycopg")
    try:
        with postgresql.server() as server:
            yield postgresql.emptied(server)
    except postgresql.NoPostgresql as error:
        pytest.skip(str(error))


def test_the_database_makes_no_difference(url: str, tmp_path: Path):
    bundles = []
    for name in ("sqlite", "postgresql"):
        maker = RunMaker(tmp_path / name)
        if name == "postgresql":
            maker.ledger.close()
            maker.ledger = Ledger.open(url, clock=maker.clock)
        maker.start().to_the_end()
        report = verify(maker.ledger, "r1", maker.run_dir)
        assert report.ok, report
        export(maker.ledger, "r1", maker.run_dir, tmp_path / f"{name}.zip", artifacts=True)
        bundles.append((tmp_path / f"{name}.zip").read_bytes())
        assert [e["kind"] for e in list_events(maker.ledger, "r1", last=1)] == ["run.finished"]
        if name == "postgresql":
            tampered(maker)
        maker.ledger.close()
    assert bundles[0] == bundles[1]


def tampered(maker: RunMaker) -> None:
    """A row edited by the database's owner is found there too."""
    with maker.ledger.engine.begin() as connection:
        connection.execute(text("ALTER TABLE events DISABLE TRIGGER USER"))
        connection.execute(text("UPDATE events SET actor = 'you' WHERE kind = 'decision.recorded'"))
    report = verify(maker.ledger, "r1", maker.run_dir)
    found = [step.check for step in report.integrity.steps if not step.ok]
    assert found == ["the columns of each event repeat its hashed bytes"]
