"""Exactly one decision whoever races, and a valid chain whoever is killed."""

from __future__ import annotations

import multiprocessing
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from flows.ledger import Ledger
from flows.ledger.chain import verify_chain
from flows.state import fold
from specs.events import GateOpened
from tests.ledger.racers import race
from tests.support.ledgers import SHA, created

PROCESSES, ROUNDS = 8, 5


def test_of_eight_processes_that_decide_at_once_exactly_one_does(database: Path):
    ledger = Ledger.open(database)
    for round_ in range(ROUNDS):
        ledger.create_run(f"r{round_}", created(f"p{round_}"), database.parent, "me")
        ledger.open_gate(f"r{round_}", GateOpened(gate="data", round=1, digest=SHA, blocked=False))
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        barrier = manager.Barrier(PROCESSES)
        jobs = [pool.submit(race, database, barrier, number, ROUNDS) for number in range(PROCESSES)]
        answers = [job.result(120) for job in jobs]
    for round_ in range(ROUNDS):
        said = [answer[round_] for answer in answers]
        assert Counter(text == "won" for text in said) == {True: 1, False: PROCESSES - 1}
        winner = said.index("won")
        state = fold(ledger.events(f"r{round_}"))
        assert state.gate is not None
        decision = state.gate.decision
        assert decision is not None
        assert decision.actor == f"person{winner}"
        for text in said:
            assert text == "won" or f"decided already: {decision.choice} by person{winner} at 20" in text
        assert [e.kind for e in ledger.events(f"r{round_}")].count("decision.recorded") == 1
        assert verify_chain(f"r{round_}", ledger.stored(f"r{round_}")) == []
    ledger.close()


@pytest.mark.parametrize("seed", range(5))
def test_a_process_killed_while_it_appends_leaves_a_valid_chain(ledger: Ledger, database: Path, seed: int):
    random_ = random.Random(seed)
    command = [sys.executable, "-m", "tests.ledger.racers", str(database)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "working\n"
        time.sleep(random_.uniform(0, 0.15))
        worker.kill()
    rows = ledger.stored("r1")
    assert verify_chain("r1", rows) == []
    assert ledger.head("r1") == rows[-1].hash
    groups: Counter[str] = Counter(e.payload["what"] for e in ledger.events("r1") if e.kind == "fallback.taken")
    assert all(count == 1 + int(what) % 3 for what, count in groups.items())
    lease = ledger.take_lease("r1")
    assert lease.taken_over_from
    assert len(ledger.events("r1")) == len(rows) + 1
