"""A ledger with one run that has begun."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.ledger import Ledger
from tests.support.ledgers import created


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Where the ledger lies; not there yet."""
    return tmp_path / "with space" / "项目" / "gatewright.db"


@pytest.fixture
def ledger(database: Path) -> Iterator[Ledger]:
    """A ledger in which run r1 of project demo has begun."""
    opened = Ledger.open(database)
    opened.create_run("r1", created(), database.parent, "me")
    yield opened
    opened.close()
