"""Completeness: nothing is missing. Counts, gaps, the terminal record, attempts and gates without an end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.audit.anchors import Anchor, check_head
from flows.audit.history import History
from flows.audit.rehearsals import rehearsals
from flows.audit.report import Checks, Part
from flows.audit.unpacking import BundleFacts
from flows.gatefiles import attempt_folder, gate_folder
from flows.rehearsing import is_rehearsal
from specs.events import AttemptReserved, DecisionRecorded, GateOpened, RunClosed, RunCreated


def completeness(history: History, anchor: Anchor | None, bundle: BundleFacts | None = None) -> Part:
    """The steps of completeness; the last one is about the anchor."""
    checks = Checks()
    _sequence(checks, history)
    _ends(checks, history, bundle)
    _attempts(checks, history)
    _folders(checks, history)
    _gates(checks, history)
    _goal(checks, history)
    rehearsals(checks, history)
    check_head(checks, history.run, history.chain.count, history.chain.anchored, anchor)
    return checks.part()


def _sequence(checks: Checks, history: History) -> None:
    faults = [f"event {f.sequence}: {f.what}" for f in history.chain.faults if f.kind == "gap"]
    faults += [] if history.chain.count else ["there is no event"]
    checks.add("events are numbered from 1 without a gap", faults[:1], f"1 to {history.chain.count}")
    created = [event.sequence for event, _ in history.of(RunCreated)]
    checks.add("the run begins once, with its first event", [] if created == [1] else ["it does not"], "run.created")


def _ends(checks: Checks, history: History, bundle: BundleFacts | None) -> None:
    count, ends = history.chain.count, history.chain.ends
    faults = []
    if ends and ends != [count]:
        faults.append(f"a terminal record stands at event {ends[0]}, but {count} events are there")
    check = "the run's row agrees with its events"
    if history.beside is not None:
        row = history.beside["runs"][0]
        checks.add(check, _row(history, row), f"state {history.state.state}, {count} events")
        if not ends and row["terminal"]:
            faults.append("the run is listed as ended, its terminal record is missing")
    elif bundle is not None and bundle.listed.events is not None:
        said = (bundle.listed.events, bundle.listed.head or "")
        found = (count, history.chain.head)
        differs = [f"the bundle's list counts {said[0]} events up to {said[1][:12]}, {count} are there"]
        checks.add(check, [] if said == found else differs, f"{count} events, as the bundle's list says")
    else:
        checks.skip(check, "a bundle of version 1 holds neither the row nor a count")
    seen = "it is the last event" if ends else "the run is open; only an anchor could show a cut tail"
    checks.add("a run that ended has its terminal record, last", faults, seen)


def _row(history: History, row: dict[str, Any]) -> list[str]:
    state, faults = history.state, []
    if (row["sequence"], row["head"]) != (history.chain.count, history.chain.head):
        faults.append(f"the run counts {row['sequence']} events, {history.chain.count} are there")
    if row["state"] != state.state:
        faults.append(f"the run is listed as {row['state']}, its events say {state.state}")
    if state.created and row["project"] != state.created.project:
        faults.append(f"the run is listed under project {row['project']!r}")
    return faults


def _midway(history: History) -> bool:
    """Whether work may have been left in the middle: the run goes on, or a person closed it where it stood."""
    return not history.state.terminal or history.kinds[RunClosed.kind] > 0


def _attempts(checks: Checks, history: History) -> None:
    faults, count = [], 0
    for stage, attempts in sorted(history.state.attempts.items()):
        count += len(attempts)
        numbers = [a.number for a in attempts]
        if numbers != list(range(1, len(numbers) + 1)):
            faults.append(f"attempts of {stage} are numbered {', '.join(map(str, numbers))}")
        reserved = {p.attempt for _, p in history.of(AttemptReserved) if p.stage == stage}
        faults += [
            f"{stage} {n} was published or ended without having been reserved" for n in numbers if n not in reserved
        ]
        for attempt in attempts:
            last = attempt is attempts[-1] and _midway(history)
            if attempt.state == "reserved" and not last:
                faults.append(f"{stage} {attempt.number} was reserved and has no end")
            if attempt.state == "published" and attempt.verdicts is None and not last:
                faults.append(f"{stage} {attempt.number} was published without verdicts")
    checks.add("every attempt that began has an end, and every published one its verdicts", faults, f"{count} attempts")


def _folders(checks: Checks, history: History) -> None:
    faults, seen = [], []
    published = history.published()
    for stage, number in sorted(published):
        if not attempt_folder(history.run_dir, stage, number).is_dir():
            faults.append(f"{stage} {number} was published, its folder is missing")
    attempts = [a for found in history.state.attempts.values() for a in found] if _midway(history) else []
    running = {(a.stage, a.number) for a in attempts if a.state == "reserved"}
    for stage in history.state.stages:
        for folder in _subfolders(attempt_folder(history.run_dir, stage, 1).parent):
            name = folder.relative_to(history.run_dir).as_posix()
            at = int(folder.name) if folder.name.isdecimal() else None
            if at is None:
                seen.append(f"{name} is partial, never used")
            elif (stage, at) not in published and (stage, at) not in running:
                faults.append(f"{name} is there, no event speaks of it")
    checks.add(
        "folders of attempts and events name each other", faults, "; ".join(seen) or f"{len(published)} published"
    )


def _subfolders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []


def _gates(checks: Checks, history: History) -> None:
    faults: list[str] = []
    rounds: dict[str, list[int]] = {}
    decided = {(p.decision.gate, p.decision.round) for _, p in history.of(DecisionRecorded)}
    opened = [(p.gate, p.round) for _, p in history.of(GateOpened)]
    state = history.state
    pending = {(goal.gate, goal.round) for goal in state.goals.values()}
    for key in opened:
        rounds.setdefault(key[0], []).append(key[1])
        waits = key in pending or key == opened[-1] or state.gates[key].withdrawn
        if key not in decided and not waits:
            faults.append(f"gate {key[0]} round {key[1]} has no decision, and the run went on")
    for gate, numbers in sorted(rounds.items()):
        if numbers != list(range(1, len(numbers) + 1)):
            faults.append(f"rounds of gate {gate} are {', '.join(map(str, numbers))}")
    for gate in state.order:
        for folder in _subfolders(gate_folder(history.run_dir, gate, 1).parent):
            key = (gate, int(folder.name) if folder.name.isdecimal() else 0)
            if key not in opened and (key not in pending or not _midway(history)):
                faults.append(f"{folder.relative_to(history.run_dir).as_posix()} is there, the gate was never opened")
    checks.add("every gate that opened was decided, except the one that waits", faults, f"{len(opened)} gates")


def _goal(checks: Checks, history: History) -> None:
    state = history.state
    missing = []
    if state.state == "finished":
        missing = [f"{s} has no published attempt that counts" for s in state.stages if not state.inputs([s])]
        missing += [] if state.release or is_rehearsal(state) else ["the release was never published"]
    checks.add("a finished run went through every stage", missing, f"{len(state.stages)} stages, run {state.state}")
