"""Power loss at every write site: `python -m benchmarks.faults [--database sqlite|postgresql|both] [--run NAME]`.

The sites are found in an unharmed run of sub-second stages, in this very build. At each site and moment (before,
inside, after) a process is killed with SIGKILL, another one goes on, and the run must come to the same end. The plain
run passes five stages; the eventful one has amendments, edits, a quorum, rework, a command and a person's work, and is
killed where the plain one does not pass. Prints counts and every fault; exit code 1 when there is one.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

from tests.support import eventful_run, light_run, postgresql
from tests.support.crashes import Crashes, Kind
from tests.support.faults import Place

RUNS: dict[str, Kind] = {"plain": light_run, "eventful": eventful_run}


def everywhere(name: str, crashes: Crashes, beside: Collection[Place], every: int) -> tuple[bool, list[Place]]:
    """Kill at the first passing of every place not in `beside`, and at the last where it is passed more than once.

    Returns whether all came to the same end, and the places.
    """
    begun = time.perf_counter()
    places = [place for place in crashes.find_places() if place not in beside]
    kills = [(p, n) for p in places for n in sorted({1, crashes.passings[p]})][::every]
    faulty = 0
    for place, passing in kills:
        faults = crashes.kill_at(place, passing)
        faulty += bool(faults)
        for fault in faults:
            print(f"  {place} (passing {passing}): {fault}"[:400], flush=True)
    moments = Counter(place.moment for place, _ in kills)
    print(
        f"{name}: {len({p.site for p in places})} write sites, {len(places)} places, {len(kills)} kills "
        f"({', '.join(f'{n} {m}' for m, n in sorted(moments.items()))}), {faulty} with another end, "
        f"{time.perf_counter() - begun:.0f} s",
        flush=True,
    )
    return not faulty, places


def each_run(database: str, chosen: str, folder: Path, url: Callable[[int], str | None], every: int) -> bool:
    """The runs that were chosen, on one database."""
    good, known = True, list[Place]()
    for name, kind in RUNS.items():
        crashes = Crashes(folder / name, url, kind)
        crashes.folder.mkdir(parents=True)
        if chosen in (name, "both"):
            ended, places = everywhere(f"{database}, {name} run", crashes, known, every)
            good &= ended
            known += places
        elif name == "plain":
            known += crashes.find_places()
    return good


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--database", choices=["sqlite", "postgresql", "both"], default="both")
    parser.add_argument("--run", choices=[*RUNS, "both"], default="both")
    parser.add_argument("--share", type=int, default=1, metavar="N", help="only every N-th kill")
    chosen = parser.parse_args()
    light_run.install()
    light_run.HOW["workers"] = False
    good = True
    folder = Path(tempfile.mkdtemp(prefix="gatewright-faults-"))
    try:
        if chosen.database != "postgresql":
            good &= each_run("SQLite", chosen.run, folder / "sqlite", lambda number: None, chosen.share)
        if chosen.database != "sqlite":
            numbers = itertools.count()  # each project its own database, whichever run it belongs to
            try:
                with postgresql.server() as url:

                    def fresh(number: int) -> str:
                        return postgresql.fresh(url, f"p{next(numbers)}")

                    good &= each_run("PostgreSQL", chosen.run, folder / "postgresql", fresh, chosen.share)
            except postgresql.NoPostgresql as error:
                print(f"PostgreSQL: not run: {error}")
                good &= chosen.database == "both"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
