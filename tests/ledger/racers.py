"""What the other processes of the concurrency tests do."""

from __future__ import annotations

import sys
from multiprocessing.synchronize import Barrier
from pathlib import Path

from flows.ledger import Ledger
from specs.decisions import Choice, Decision
from specs.errors import Refused
from specs.events import FallbackTaken

SHA = "a" * 64
CHOICES: tuple[Choice, ...] = ("approve", "rework", "reject")


def race(database: Path | str, barrier: Barrier, number: int, rounds: int) -> list[str]:
    """Decide on the gate of each run at the same moment as the others; says who won, or why not."""
    ledger = Ledger.open(database)
    results = []
    for round_ in range(rounds):
        decision = Decision(
            run=f"r{round_}",
            gate="data",
            round=1,
            digest=SHA,
            choice=CHOICES[number % 3],
            actor=f"person{number}",
            authentication="terminal",
            comment="now",
        )
        barrier.wait(60)
        try:
            ledger.record_decision(decision, decision.actor)
            results.append("won")
        except Refused as error:
            results.append(error.message)
    return results


def append_for_ever(database: Path) -> None:
    """Append until killed, several events at once now and then."""
    ledger = Ledger.open(database)
    lease = ledger.take_lease("r1")
    print("working", flush=True)  # noqa: T201
    number = 0
    while True:
        number += 1
        note = FallbackTaken(stage="data", what=f"{number}", why="x" * 3000, instead="nothing")
        ledger.append_all("r1", [note] * (1 + number % 3), "gatewright", fence=lease.fence)


if __name__ == "__main__":
    append_for_ever(Path(sys.argv[1]))
