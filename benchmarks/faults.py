"""Power loss at every write site: `python -m benchmarks.faults [--database sqlite|postgresql|both] [--share N]`.

The sites are found in an unharmed run of sub-second stages, in this very build. At each site and moment (before,
inside, after) a process is killed with SIGKILL, another one goes on, and the run must come to the same end. Prints
counts and every fault; exit code 1 when there is one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.support import light_run, postgresql
from tests.support.crashes import Crashes


def everywhere(name: str, folder: Path, url: Callable[[int], str | None], every: int) -> bool:
    """Kill at the first passing of every place, and at the last where it is passed more than once."""
    begun = time.perf_counter()
    crashes = Crashes(folder, url)
    places = crashes.find_places()
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
    return not faulty


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--database", choices=["sqlite", "postgresql", "both"], default="both")
    parser.add_argument("--share", type=int, default=1, metavar="N", help="only every N-th kill")
    chosen = parser.parse_args()
    light_run.install()
    light_run.HOW["workers"] = False
    good = True
    folder = Path(tempfile.mkdtemp(prefix="gatewright-faults-"))
    try:
        if chosen.database != "postgresql":
            (folder / "sqlite").mkdir()
            good &= everywhere("SQLite", folder / "sqlite", lambda number: None, chosen.share)
        if chosen.database != "sqlite":
            (folder / "postgresql").mkdir()
            try:
                with postgresql.server() as url:
                    good &= everywhere(
                        "PostgreSQL",
                        folder / "postgresql",
                        lambda number: postgresql.fresh(url, f"p{number}"),
                        chosen.share,
                    )
            except postgresql.NoPostgresql as error:
                print(f"PostgreSQL: not run: {error}")
                good &= chosen.database == "both"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
