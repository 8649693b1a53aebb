"""Approve, reject and expiry at the same moment: exactly one of them is recorded, and the others are told which."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from tests.support import postgresql
from tests.support.contest import contest, prepare

pytestmark = [
    pytest.mark.skipif(
        "fork" not in multiprocessing.get_all_start_methods(), reason="its processes are forks of one prepared process"
    ),
    pytest.mark.usefixtures("light_stages"),
]


@pytest.mark.parametrize(("processes", "rounds"), [(6, 3), pytest.param(50, 20, marks=pytest.mark.slow)])
def test_exactly_one_of_many_closes_a_gate(tmp_path: Path, processes: int, rounds: int):
    results = contest(prepare(tmp_path, rounds), processes)
    assert [r for r in results if not r.as_promised(processes)] == []


@pytest.mark.slow
def test_exactly_one_of_many_closes_a_gate_on_postgresql(tmp_path: Path):
    pytest.importorskip("psycopg")
    try:
        with postgresql.server() as url:
            results = contest(prepare(tmp_path, 20, lambda number: url), 50)
    except postgresql.NoPostgresql as error:
        pytest.skip(str(error))
    assert [r for r in results if not r.as_promised(50)] == []
