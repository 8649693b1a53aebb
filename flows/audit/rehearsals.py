"""Rehearsals in the history: one released nothing and said truly how it ended; who needed one had one."""

from __future__ import annotations

import json

from pydantic_core import from_json

from flows.audit.history import History
from flows.audit.report import Checks
from flows.gatefiles import attempt_folder, load_proposal
from flows.rehearsing import TRAIN, devices_of, failed_stages, is_rehearsal
from specs.errors import GatewrightError
from specs.events import DecisionRecorded, RunFinished

CHECK = "a rehearsal released nothing and said truly whether it passed; a training on several devices had one"


def rehearsals(checks: Checks, history: History) -> None:
    """The step."""
    rehearsal = is_rehearsal(history.state)
    faults = _frozen(history)
    if rehearsal and history.state.release is not None:
        faults.append("this is a rehearsal, and something of it was released")
    for event, finished in history.of(RunFinished):
        where = f"event {event.sequence}: run.finished"
        if (finished.rehearsed is not None) != rehearsal:
            faults.append(f"{where} does not say truly whether this was a rehearsal")
        elif rehearsal:
            faults += [f"{where} {fault}" for fault in _ending(history, finished)]
    named = 0
    for event, said in history.of(DecisionRecorded):
        decision = said.decision
        if decision.gate != TRAIN or decision.choice != "approve" or rehearsal:
            continue
        named += bool(decision.rehearsal)
        if _devices(history, decision.edited_proposal, decision.round) > 1 and not decision.rehearsal:
            faults.append(f"event {event.sequence}: a training on several devices was approved without a rehearsal")
    seen = "a rehearsal" if rehearsal else f"{named} approvals rest on one"
    checks.add(CHECK, faults, seen)


def _frozen(history: History) -> list[str]:
    """Whether spec and first event agree on what kind of run this is."""
    try:
        frozen = from_json((history.run_dir / "spec.json").read_bytes()).get("rehearsal")  # names too deep a nesting
    except (OSError, ValueError, AttributeError):
        return []  # another step says that it cannot be read
    created = history.state.created
    same = created is None or created.rehearsal == frozen
    return [] if same else ["the first event and the spec do not agree whether this is a rehearsal"]


def _ending(history: History, finished: RunFinished) -> list[str]:
    faults = []
    if finished.passed != (not failed_stages(history.state)):
        faults.append("says something else than the verdicts do")
    trained = history.state.current(TRAIN)
    if trained is not None:
        settings = attempt_folder(history.run_dir, TRAIN, trained.number) / "artifacts" / "settings.json"
        try:
            same = json.loads(settings.read_bytes())["fingerprint"] == finished.rehearsed
        except (OSError, ValueError, LookupError, TypeError):
            return faults  # a file that is gone or changed is named by another step
        if not same:
            faults.append("names another configuration than was trained")
    return faults


def _devices(history: History, edited: str | None, round: int) -> int:
    proposal = edited or history.state.proposals.get((TRAIN, round))
    try:
        return devices_of(load_proposal(history.run_dir, proposal).parameters) if proposal else 1
    except GatewrightError:  # another step says that the proposal is gone or changed
        return 1
