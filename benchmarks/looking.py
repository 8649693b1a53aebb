"""Process time of commands that look: `python -m benchmarks.looking [--runs 10000]`.

Builds a project whose ledger has that many runs, one of them at a gate, and prints the best of five of user plus system
time for `gates`, `runs`, `runs --last 20` and `status`.
"""

from __future__ import annotations

import argparse
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import light_run

COMMANDS = (["gates"], ["runs", "--last", "20"], ["runs"], ["status"])


def many_runs(project: Path, count: int) -> None:
    """Copies of the row of the one real run, as finished ones of the same project."""
    connection = sqlite3.connect(project / ".gatewright" / "gatewright.db")
    columns = [row[1] for row in connection.execute("PRAGMA table_info(runs)")]
    first = dict(zip(columns, connection.execute("SELECT * FROM runs").fetchone(), strict=True))
    rows = []
    for number in range(count):
        at = f"2025-{1 + number % 12:02d}-01T00:00:{number % 60:02d}.{number:06d}Z"
        more = {"run": f"old-{number}", "state": "finished", "open": 0, "terminal": 1, "created_at": at}
        rows.append([(first | more)[name] for name in columns])
    connection.executemany(f"INSERT INTO runs VALUES ({', '.join('?' * len(columns))})", rows)
    connection.commit()
    connection.close()


def process_seconds(project: Path, words: list[str]) -> float:
    """User plus system time of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "flows.cli", *words]
    root = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run(command, cwd=project, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=10_000)
    chosen = parser.parse_args()
    light_run.install()
    with tempfile.TemporaryDirectory() as folder:
        workspace = light_run.begin(light_run.make_project(Path(folder) / "p"))
        light_run.passage(workspace)
        many_runs(workspace.project_dir, chosen.runs)
        for words in COMMANDS:
            best = min(process_seconds(workspace.project_dir, list(words)) for _ in range(5))
            print(f"{best:.3f} s  gatewright {' '.join(words)}  ({chosen.runs} runs)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
