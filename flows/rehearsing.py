"""Rehearsals: whether one passed, for which configuration, and who may not train without one.

A rehearsal goes through the same gates as a run in earnest, decided by the same people, because it is there to show
that the whole chain works, the gates among it. It has no release gate: nothing of it can be released. Training on
several devices needs a passed one of the same configuration, base model and samples.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from flows.ledger import Ledger
from flows.reviewing import evidence_of
from flows.state import RunState
from flows.workspace import Workspace
from specs.canonical import sha256_file
from specs.criteria import blocked
from specs.errors import GuardRefused, InputError
from specs.events import RunFinished

TRAIN = "train"


def finished_record(workspace: Workspace, state: RunState) -> RunFinished:
    """The record that ends a run; of a rehearsal with the configuration that it rehearsed and whether it passed."""
    if not is_rehearsal(state):
        return RunFinished()
    return RunFinished(rehearsed=fingerprint_of(workspace, state, TRAIN), passed=not failed_stages(state))


def is_rehearsal(state: RunState) -> bool:
    """Whether a run is a rehearsal."""
    return state.created is not None and state.created.rehearsal is not None


def failed_stages(state: RunState) -> list[str]:
    """The stages without verdicts, or with a blocking criterion that failed; one that was overridden failed too."""
    found = {stage: state.current(stage) for stage in state.stages}
    return [
        s for s, attempt in found.items() if attempt is None or blocked(attempt.verdicts or ()) or not attempt.verdicts
    ]


def fingerprint_of(workspace: Workspace, state: RunState, stage: str) -> str:
    """The fingerprint that a stage measured or trained under. Raises `InputError` when its file is not as published."""
    evidence = evidence_of(workspace, state)[stage]
    path = workspace.attempt(stage, evidence.attempt) / "artifacts" / "settings.json"
    published = {a.path: a.sha256 for a in evidence.artifacts}
    if not path.is_file() or sha256_file(path) != published.get("artifacts/settings.json"):
        raise InputError(f"{path} is missing or was changed", "restore it from a backup, or make the stage anew")
    return str(json.loads(path.read_bytes())["fingerprint"])


def devices_of(parameters: Mapping[str, Any]) -> int:
    """How many processes a proposal trains in, each on a device of its own."""
    return int((parameters.get("training") or {}).get("ranks") or 1)


def required_rehearsal(
    workspace: Workspace, ledger: Ledger, state: RunState, gate: str, parameters: Mapping[str, Any]
) -> str:
    """The rehearsal that an approval at a gate rests on; empty where none is needed.

    Raises `GuardRefused` at the gate of a training on several devices that nobody has rehearsed.
    """
    devices = devices_of(parameters) if gate == TRAIN else 1
    if devices < 2 or is_rehearsal(state):
        return ""
    fingerprint = fingerprint_of(workspace, state, "stress_test")
    found = passed_rehearsal(ledger, state.created.project if state.created else "", fingerprint)
    if found is None:
        raise GuardRefused(
            f"a training in {devices} processes needs a passed rehearsal of the same configuration, and there is none",
            f"gatewright run {shlex.quote(str(workspace.project_dir))} --rehearse 0.01 makes one; this gate waits",
        )
    return found


def passed_rehearsal(ledger: Ledger, project: str, fingerprint: str) -> str | None:
    """The newest rehearsal of a project that passed under a fingerprint."""
    for row in ledger.runs(project, states=("finished",)):
        for event in reversed(ledger.events(row.run)):
            payload = event.read()
            if isinstance(payload, RunFinished):
                if payload.passed and payload.rehearsed == fingerprint:
                    return row.run
                break
    return None
