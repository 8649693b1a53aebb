"""50 processes race to close one gate: `python -m benchmarks.races [--processes 50] [--rounds 20] [--database ...]`.

The processes are started once and meet at a barrier before each round. A third approves, a third rejects, and for a
third the time is over. Every round must end with exactly one record, and everybody else must be told which.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.support import light_run, postgresql
from tests.support.contest import contest, prepare


def races(name: str, processes: int, rounds: int, url: Callable[[int], str | None]) -> bool:
    """Prepare the gates, race, and count."""
    with tempfile.TemporaryDirectory(prefix="gatewright-races-") as folder:
        workspaces = prepare(Path(folder), rounds, url)
        begun = time.perf_counter()
        results = contest(workspaces, processes)
        took = time.perf_counter() - begun
    wrong = [(number, r) for number, r in enumerate(results) if not r.as_promised(processes)]
    for number, result in wrong:
        print(f"  round {number}: {result}")
    how = ", ".join(f"{n} {choice}" for choice, n in sorted(Counter(r.closed_by for r in results).items()))
    said = (
        f"exactly one record and {processes - 1} clear answers each" if not wrong else f"{len(wrong)} NOT as promised"
    )
    print(f"{name}: {rounds} rounds of {processes} processes in {took:.1f} s: {said}; closed by {how}", flush=True)
    return not wrong


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--database", choices=["sqlite", "postgresql", "both"], default="both")
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args()
    light_run.install()
    good = True
    if chosen.database != "postgresql":
        good &= races("SQLite", chosen.processes, chosen.rounds, lambda number: None)
    if chosen.database != "sqlite":
        try:
            with postgresql.server() as url:
                good &= races("PostgreSQL", chosen.processes, chosen.rounds, lambda number: url)
        except postgresql.NoPostgresql as error:
            print(f"PostgreSQL: not run: {error}")
            good &= chosen.database == "both"
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
