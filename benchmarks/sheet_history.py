"""Expected beside actual over several runs of the Chinese demo in one project: do the task sheets get better?

    python -m benchmarks.sheet_history [--runs 3] [--project FOLDER]

Every run is started, decided and resumed through the command line, from raw files to the release. Printed is, per run,
the mean of |expected / actual - 1| over all numbers of the sheet that the first gate signed, by what they count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WAITING = 3


def gatewright(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    """One command of this checkout."""
    environment = {**os.environ, "GATEWRIGHT_HOME": str(home)}
    command = [sys.executable, "-m", "flows.cli", *words]
    return subprocess.run(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def whole_run(project: Path, home: Path) -> float:
    """Start a run and approve every gate; returns its seconds. Ends the program where a command does not go on."""
    began = time.monotonic()
    done = gatewright("run", str(project), home=home)
    while done.returncode == WAITING:
        decided = gatewright("approve", "--project", str(project), "--as", "me", home=home)
        if decided.returncode:
            sys.exit(decided.stderr)
        done = gatewright("resume", "--project", str(project), home=home)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return time.monotonic() - began


def main() -> None:
    """Print one line per run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--project", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        project, home = options.project or Path(temporary) / "demo", Path(temporary) / "home"
        if not project.exists():
            made = gatewright("init", str(project), "--example", "cnc-repair", "--lang", "zh", home=home)
            if made.returncode:
                sys.exit(made.stderr)
        for number in range(1, options.runs + 1):
            print(f"run {number}: {whole_run(project, home):.0f} s", flush=True)
        told = gatewright("audit", "show", "--project", str(project), "--json", home=home)
        for point in json.loads(told.stdout)["curve"]:
            errors = ", ".join(f"{what} {error:.1%}" for what, error in point["errors"].items())
            print(f"{point['run']}: {errors}", flush=True)
        gatewright("down", home=home)


if __name__ == "__main__":
    main()
