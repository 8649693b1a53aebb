"""50 processes race to decide one gate: `python -m benchmarks.races [--processes 50] [--rounds 20] [--database ...]`.

The processes are started once and meet at a barrier before each round. They approve, ask for rework and reject; every
round must end with exactly one decision, and everybody else must have been told who decided and what.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from flows.ledger import Ledger
from flows.ledger.chain import verify_chain
from specs.events import GateOpened
from tests.ledger.racers import race
from tests.support import postgresql
from tests.support.ledgers import SHA, created


def one(place: Path | str, barrier: Any, number: int, rounds: int, answers: Any) -> None:
    """One process: its answer to every round."""
    answers.put((number, race(place, barrier, number, rounds)))


def races(name: str, place: Path | str, processes: int, rounds: int) -> bool:
    """Prepare the gates, race, and count."""
    ledger = Ledger.open(place)
    for round_ in range(rounds):
        ledger.create_run(f"r{round_}", created(f"p{round_}"), Path.cwd(), "me")
        ledger.open_gate(f"r{round_}", GateOpened(gate="data", round=1, digest=SHA, blocked=False))
    ledger.close()
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(processes), context.Queue()
    team = [context.Process(target=one, args=(place, barrier, n, rounds, answers)) for n in range(processes)]
    begun = time.perf_counter()
    for process in team:
        process.start()
    said = dict(answers.get(timeout=600) for _ in team)
    for process in team:
        process.join()
    took = time.perf_counter() - begun
    ledger = Ledger.open(place)
    good, winners = True, Counter[str]()
    for round_ in range(rounds):
        texts = [said[number][round_] for number in range(processes)]
        decisions = [e for e in ledger.events(f"r{round_}") if e.kind == "decision.recorded"]
        decision = decisions[0].payload["decision"]
        refusal = f"decided already: {decision['choice']} by {decision['actor']}"
        clear = sum(refusal in text for text in texts)
        winners[decision["choice"]] += 1
        intact = not verify_chain(f"r{round_}", ledger.stored(f"r{round_}"))
        if (len(decisions), texts.count("won"), clear, intact) != (1, 1, processes - 1, True):
            good = False
            print(f"  round {round_}: {len(decisions)} decisions, {texts.count('won')} winners, {clear} clear refusals")
    ledger.close()
    print(
        f"{name}: {rounds} rounds of {processes} processes in {took:.1f} s: "
        + (f"exactly one decision and {processes - 1} clear refusals each; " if good else "NOT as promised; ")
        + ", ".join(f"{n} {choice}" for choice, n in sorted(winners.items())),
        flush=True,
    )
    return good


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--database", choices=["sqlite", "postgresql", "both"], default="both")
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args()
    good = True
    if chosen.database != "postgresql":
        with tempfile.TemporaryDirectory() as folder:
            good &= races("SQLite", Path(folder) / "gatewright.db", chosen.processes, chosen.rounds)
    if chosen.database != "sqlite":
        try:
            with postgresql.server() as url:
                good &= races("PostgreSQL", url, chosen.processes, chosen.rounds)
        except postgresql.NoPostgresql as error:
            print(f"PostgreSQL: not run: {error}")
            good &= chosen.database == "both"
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
