"""Expected beside actual over several runs of one project: do the task sheets get better?

    python -m benchmarks.sheet_history [--runs 3] [--project FOLDER] [--whole] [--home FOLDER]

Three real runs of the Chinese example, from raw files to the release, in this process and without Prefect: engine,
workers, gates and ledger are the real ones. Caps make them short (`--whole` leaves those of the example). A gate that a
failed criterion blocks is approved by override: what is measured here is the sheet, not the model. Printed is every
number that the first gate signed beside what came, and per run the mean of |expected / actual - 1| by what it counts.
The home, with what work took on this machine, is an empty one unless `--home` names another: the first run then has
rules of thumb alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flows.curve import curve
from flows.deciding import record
from flows.earlier import earlier_results
from flows.ledgers import ledger_of_run
from flows.new_project import create
from flows.passage import pass_alone
from flows.reviewing import evidence_of
from flows.session import Session, open_session
from flows.starting import start_run
from flows.state import fold
from flows.workspace import Workspace

CAPS = {
    "dry_run: {steps: 30, max_tokens_per_step: 512}": "dry_run: {steps: 12, max_tokens_per_step: 512}",
    "train: {max_steps: 40, max_tokens_per_step: 2048}": "train: {max_steps: 16, max_tokens_per_step: 1024}",
    "evaluate: {generations: 16, max_new_tokens: 64}": "evaluate: {generations: 4, max_new_tokens: 16}",
}
"""Lines of the example's project.yaml, and what stands in their place here."""


def make(folder: Path, whole: bool) -> None:
    """The project, with caps that make its runs short."""
    create(folder, "cnc-repair", "zh")
    spec = folder / "project.yaml"
    text = spec.read_text(encoding="utf-8")
    for line, shorter in CAPS.items():
        if line not in text:
            sys.exit(f"{spec} does not say `{line}` any more")
        text = text if whole else text.replace(line, shorter)
    spec.write_text(text, encoding="utf-8")


def whole_run(project: Path) -> Workspace:
    """Start a run, approve every gate, go on to the release. Ends the program where a passage does not go on."""
    workspace = start_run(project, None)
    while True:
        session = Session()
        open_session(workspace.run, session)
        pass_alone(project, workspace.run, session)
        if session.ending == "finished":
            return workspace
        if session.ending not in ("waiting", "waiting_blocked"):
            sys.exit(f"{workspace.run} {session.ending}: {session.error}")
        override = session.ending == "waiting_blocked"
        record(
            workspace,
            ledger_of_run(workspace),
            choice="approve",
            actor="me",
            authentication="unauthenticated",
            comment="overridden by the benchmark" if override else "",
            override=override,
        )
        if override:
            print(f"  overridden at {fold(ledger_of_run(workspace).events(workspace.run)).stage}", flush=True)


def tell(workspace: Workspace, seconds: float) -> None:
    """Every number of the run's signed sheet, beside what came; how busy others kept the machine."""
    ledger = ledger_of_run(workspace)
    state = fold(ledger.events(workspace.run))
    project = state.created.project if state.created else ""
    print(f"{workspace.run}: {seconds:.0f} s", flush=True)
    for entry in earlier_results(ledger, workspace, project, with_this=True).results:
        if entry["run"] == workspace.run and not entry["known"]:
            off = f"{entry['expected'] / entry['actual'] - 1:+.1%}" if entry["actual"] else ""
            numbers = f"{entry['expected']:>14.6g}{entry['actual']:>14.6g} {off:>8}"
            print(f"  {entry['stage']:<12}{entry['metric']:<20}{numbers}{_alone(entry)}")
    busy = {stage: e.others_cpu_share for stage, e in evidence_of(workspace, state).items()}
    print(
        "  other programs:", ", ".join(f"{s} {share:.0%}" for s, share in busy.items() if share is not None), flush=True
    )


def _alone(entry: dict[str, Any]) -> str:
    """What a time would have been on an idle machine, and whether the interval of the sheet holds that."""
    if entry["idle"] is None:
        return ""
    off = entry["expected"] / entry["idle"] - 1
    inside = "inside" if entry["low"] <= entry["idle"] <= entry["high"] else "outside"
    return f"   alone {entry['idle']:.4g} ({off:+.1%}, {inside} {entry['low']:g} to {entry['high']:g})"


def main() -> None:
    """Print each run, then the curve."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--project", type=Path)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--home", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["GATEWRIGHT_HOME"] = str((options.home or Path(temporary) / "home").resolve())
        project = options.project or Path(temporary) / "demo"
        if not project.exists():
            make(project, options.whole)
        for _ in range(options.runs):
            began = time.monotonic()
            workspace = whole_run(project)
            tell(workspace, time.monotonic() - began)
        ledger = ledger_of_run(workspace)
        created = fold(ledger.events(workspace.run)).created
        name = created.project if created else ""
        for run, errors in curve(earlier_results(ledger, workspace, name, with_this=True).results):
            print(f"{run}: " + ", ".join(f"{what} {error:.1%}" for what, error in errors.items()), flush=True)


if __name__ == "__main__":
    main()
