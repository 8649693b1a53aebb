"""Run an example project to its release: start or resume it, and decide its gates when told in whose name.

    python examples/demo.py demo --example cnc-repair [--approve WHO]

Decides through the same `gatewright approve` that a person uses. Ends with the exit code of the last command:
3 while a gate waits for a person, 4 while a failed blocking criterion waits for one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

WAITING = 3


def gatewright(*words: str, ask: bool = True) -> int:
    """Run one command of the installation that runs this script; `ask` lets it ask at the terminal."""
    print("$ gatewright " + " ".join(words), flush=True)
    process = subprocess.Popen([_program(), *words], stdin=None if ask else subprocess.DEVNULL)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # the command got it too, and saves everything before it ends


def _program() -> str:
    """The `gatewright` beside this Python."""
    found = shutil.which("gatewright", path=str(Path(sys.executable).parent))
    if found is None:
        sys.exit("gatewright is not installed beside this Python: make demo installs it")
    return found


def state_of(project: Path) -> str:
    """The state of the project's newest run; empty when it has none."""
    if not (project / ".gatewright").is_dir():
        return ""
    answer = subprocess.run([_program(), "status", str(project), "--json"], capture_output=True, text=True)
    return str(json.loads(answer.stdout)["state"]) if answer.returncode == 0 else ""


def main() -> int:
    """Exit code of the last command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("project", type=Path)
    parser.add_argument("--example", required=True)
    parser.add_argument("--approve", metavar="WHO", default="", help="decide every gate in this name")
    options = parser.parse_args()
    project, ask = str(options.project), not options.approve
    if not (options.project / "project.yaml").is_file():
        code = gatewright("init", project, "--example", options.example)
        if code:
            return code
    state = state_of(options.project)
    if state in ("finished", "rejected"):
        print(f"the run in {project} is {state}; `gatewright run {project}` starts another", flush=True)
        return gatewright("status", project)
    code = gatewright("resume" if state else "run", project, ask=ask)
    while code == WAITING and options.approve:
        code = gatewright("approve", project, "--as", options.approve, ask=False)
        if code == 0:
            code = gatewright("resume", project, ask=False)
    return code


if __name__ == "__main__":
    sys.exit(main())
