"""Builds ledgers with a million events and prints how long looking at them takes.

    python -m benchmarks.audit [--folder DIR] [--events 1000000] [--runs 10000] [--keep]

Two projects are built and kept for repeats: `one`, a single run of that many events, and `many`, that many runs that
share as many events. Each command runs in a process of its own; printed are its wall time, its processor time and
its highest resident memory. Nothing is asserted: the figures are for reading.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import astuple
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, update

from flows.ledger.chain import Stored, genesis, seal, timestamp
from flows.ledger.engine import writing
from flows.ledger.schema import events, runs
from specs.canonical import sha256_bytes
from specs.loading import parse_project
from tests.support.run_maker import SHA, RunMaker

_SPEC = "project: demo\nbase_model: tiny\nsources:\n  - {kind: notes, path: raw/notes.md}\n"
_AT_ONCE = 20_000
_EVERY = 1000
FAILED_ATTEMPTS = 100


def begun(folder: Path, run: str) -> RunMaker:
    """A run that has begun, in a project that the commands can read."""
    maker = RunMaker(folder, run, spec=parse_project(_SPEC)).start()
    (folder / "project.yaml").write_text(_SPEC)
    return maker


def bulk(index: int) -> tuple[str, dict[str, Any]]:
    """The kind and payload of one of the many events of a long training."""
    step = index * 10
    match index % 10:
        case 0 | 1 | 2 | 3 | 4:
            return "checkpoint.saved", {"attempt": 1, "sha256": SHA, "stage": "data", "step": step, "version": 1}
        case 5 | 6 | 7:
            said = {"instead": f"read row {step} as text", "stage": "data", "what": "a date", "why": "no such day"}
            return "fallback.taken", {**said, "version": 1}
        case 8:
            return "prefect.attached", {"flow_run": f"flow-{index}", "reason": "resumed", "version": 1}
    return "run.stopped", {"reason": "asked", "stage": "data", "version": 1}


def quick_seal(run: str, sequence: int, kind: str, at: datetime, payload: dict[str, Any], previous: str) -> Stored:
    """As `seal`, for payloads of whole numbers and ASCII texts, whose sorted compact JSON is canonical."""
    when = timestamp(at)
    fields = {"run": run, "sequence": sequence, "kind": kind, "actor": "gatewright", "at": when}
    whole = {**fields, "payload": payload, "previous": previous}
    body = json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()
    if sequence % _EVERY == 1 and body != seal(run, sequence, kind, "gatewright", at, payload, previous).body:
        raise AssertionError(f"event {sequence} is not canonical")
    return Stored(run, sequence, kind, "gatewright", when, body, sha256_bytes(body))


def chained(run: str, first: int, count: int, at: datetime, previous: str) -> Iterator[Stored]:
    """`count` more events of a run, from sequence `first` on."""
    for index in range(count):
        kind, payload = bulk(index)
        row = quick_seal(run, first + index, kind, at + timedelta(seconds=index), payload, previous)
        previous = row.hash
        yield row


def store(connection: Connection, rows: Iterator[Stored]) -> Stored | None:
    """Insert rows many at a time; returns the last one."""
    names, last, batch = list(Stored.__dataclass_fields__), None, []
    for row in rows:
        batch.append(dict(zip(names, astuple(row), strict=True)))
        last = row
        if len(batch) == _AT_ONCE:
            connection.execute(insert(events), batch)
            batch.clear()
    if batch:
        connection.execute(insert(events), batch)
    return last


def build_one(folder: Path, count: int) -> None:
    """A run that waits at its second gate, after failed attempts and a long list of events of its data stage."""
    maker = begun(folder, "r1")
    maker.until_gate("data")
    maker.decide()
    for _ in range(FAILED_ATTEMPTS):
        maker.work(fail="out of memory")
    row = maker.ledger.rows_beside("r1")["runs"][0]
    first = int(str(row["sequence"])) + 1
    with writing(maker.ledger.engine) as connection:
        rows = chained("r1", first, count - first + 1, maker.clock(), str(row["head"]))
        last = store(connection, rows)
        assert last is not None
        changes = {"sequence": last.sequence, "head": last.hash, "state": "stopped"}
        connection.execute(update(runs).where(runs.c.run == "r1").values(changes))
    maker.ledger.close()


def build_many(folder: Path, count: int, events_count: int) -> None:
    """Many ended runs that share the events evenly, and one open run that waits at a gate."""
    maker = begun(folder, "open")
    maker.until_gate("data")
    each = max(2, events_count // count)
    at = maker.clock() - timedelta(days=400)
    with writing(maker.ledger.engine) as connection:
        for number in range(count):
            run = f"run-{number:05d}"
            created = {"code": "1", "environment": SHA, "policy": SHA, "project": "demo", "solo": True, "spec": SHA}
            payload = {**created, "stages": ["data", "dry_run"], "version": 1}
            row = {"run": run, "project": "demo", "state": "finished", "stage": "release", "terminal": True}
            values = {**row, "created_at": timestamp(at), "project_dir": str(folder), "open": False}
            connection.execute(insert(runs).values(**values, sequence=each, head=genesis(run)))
            first = quick_seal(run, 1, "run.created", at, payload, genesis(run))
            middle = list(chained(run, 2, each - 2, at, first.hash))
            before = middle[-1] if middle else first
            end = quick_seal(run, each, "run.finished", at, {"version": 1}, before.hash)
            store(connection, iter([first, *middle, end]))
            connection.execute(update(runs).where(runs.c.run == run).values(head=end.hash))
            at += timedelta(minutes=5)
    maker.ledger.close()


def measured(folder: Path, *words: str) -> str:
    """Run a command; returns its figures as a line."""
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-m", "flows.cli", *words]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    began = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - began
        size = out.tell() or out.seek(0, os.SEEK_END)
    processor = usage.ru_utime + usage.ru_stime
    peak = usage.ru_maxrss / 1024
    figures = f"{wall:7.2f} s wall  {processor:7.2f} s processor  {peak:6.0f} MiB peak  {size:>9,} bytes out"
    return f"{' '.join(words):<42} {figures}  exit {process.returncode}"


def main() -> None:
    """Build what is missing, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "gatewright-audit-benchmark")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--only", choices=["one", "many"])
    parser.add_argument("--anew", action="store_true", help="build again what is there")
    chosen = parser.parse_args()
    folder = chosen.folder / f"{chosen.events}-{chosen.runs}"
    commands = {
        "one": (
            ["audit", "verify", "r1"],
            ["audit", "list", "r1", "--last", "20"],
            ["audit", "list", "r1", "--kind", "decision.recorded"],
            ["audit", "show", "r1"],
            ["audit", "export", "../one.zip", "r1"],
            ["audit", "verify", "--bundle", "../one.zip"],
        ),
        "many": (
            ["runs"],
            ["status", "open"],
            ["gates"],
            ["audit", "list", "run-00042"],
            ["audit", "list"],
        ),
    }
    for name in [chosen.only] if chosen.only else list(commands):
        project = folder / name
        if chosen.anew or not (project / "built").exists():
            shutil.rmtree(project, ignore_errors=True)
            began = time.perf_counter()
            if name == "one":
                build_one(project, chosen.events)
            else:
                build_many(project, chosen.runs, chosen.events)
            (project / "built").touch()
            print(f"built {project} in {time.perf_counter() - began:.0f} s")
        (folder / "one.zip").unlink(missing_ok=True)
        for words in commands[name]:
            print(measured(project, *words), flush=True)


if __name__ == "__main__":
    main()
