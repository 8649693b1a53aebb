"""Approvals of many processes at the same moment: nobody counts twice, and a quorum opens its gate once."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from tests.support import postgresql
from tests.support.quorum_contest import Outcome, contest, prepare

pytestmark = [
    pytest.mark.skipif(
        "fork" not in multiprocessing.get_all_start_methods(), reason="its processes are forks of one prepared process"
    ),
    pytest.mark.usefixtures("light_stages"),
]


def broken(outcomes: list[Outcome], processes: int) -> list[Outcome]:
    return [outcome for outcome in outcomes if not outcome.as_promised(processes)]


def opened(outcomes: list[Outcome]) -> int:
    return sum(bool(outcome.approved_by) for outcome in outcomes)


@pytest.mark.parametrize(("processes", "rounds"), [(6, 1), pytest.param(30, 12, marks=pytest.mark.slow)])
def test_nobody_counts_twice_and_a_quorum_opens_the_gate_once(tmp_path: Path, processes: int, rounds: int):
    outcomes = contest(prepare(tmp_path, rounds), processes)
    assert broken(outcomes, processes) == []
    assert opened(outcomes) >= rounds * 2 // 3


@pytest.mark.slow
def test_nobody_counts_twice_on_postgresql(tmp_path: Path):
    pytest.importorskip("psycopg")
    try:
        with postgresql.server() as url:
            outcomes = contest(prepare(tmp_path, 12, lambda number: url), 30)
    except postgresql.NoPostgresql as error:
        pytest.skip(str(error))
    assert broken(outcomes, 30) == []
    assert opened(outcomes) >= 8
