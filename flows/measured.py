"""What stages measured, for later steps and for the ledger: the configuration that a stress test ran, its rungs, the
small trials of a dry run, what accounts learnt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents.reason_texts import text
from flows.earlier import runs_of_project
from flows.ledger import Ledger
from flows.reviewing import approved_proposals, read_evidence
from flows.state import Attempt, RunState, fold
from flows.workspace import Workspace
from specs.canonical import plain, sha256_bytes
from specs.errors import GatewrightError, Refused
from specs.events import MemoryRung, TrialEnded
from specs.files import read_lines
from specs.parameters import leaves
from specs.project import Project
from specs.proposals import Calibration, Proposal, Reason
from specs.secrets import redacted

STAGE, DRY_RUN = "stress_test", "dry_run"
CONFIGURATION, LADDER, CALIBRATION = "configuration.json", "ladder.jsonl", "calibration.json"
TRIALS = "trials.jsonl"

RUNS = 5
"""Earlier runs of the project whose stress tests are looked at, the newest ones."""


def proposals_as_run(workspace: Workspace, state: RunState, spec: Project) -> dict[str, Proposal]:
    """The approved proposals, the stress test's with the configuration that it ended with.

    What its ladder took has a reason of its own, so that the next gate shows it. Raises `Refused` when the artifact
    that says so is not the one that was published.
    """
    approved = approved_proposals(workspace, state)
    attempt = state.inputs([STAGE]).get(STAGE)
    if attempt is None or STAGE not in approved:
        return approved
    data = published_bytes(workspace, attempt, CONFIGURATION)
    if data is not None:
        approved[STAGE] = _as_run(approved[STAGE], json.loads(data), spec)
    return approved


def _as_run(proposal: Proposal, measured: dict[str, Any], spec: Project) -> Proposal:
    before, now = leaves(plain(proposal.parameters["training"])), leaves(measured)
    changed = {path: value for path, value in now.items() if before.get(path) != value}
    if not changed:
        return proposal
    reasons = [r for r in proposal.reasons if r.parameter.removeprefix("training.") not in changed]
    for path, value in changed.items():
        why = text(spec.language, "ladder", before=_shown(before.get(path)), after=_shown(value))
        reasons.append(Reason(parameter=f"training.{path}", text=why, source="ladder"))
    return proposal.model_copy(
        update={"parameters": {**proposal.parameters, "training": measured}, "reasons": reasons, "memory": None}
    )


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def published_bytes(workspace: Workspace, attempt: Attempt, name: str) -> bytes | None:
    """An artifact of a published attempt, compared with its evidence; None where the evidence lists none.

    Raises `Refused` for one that is not what was published.
    """
    evidence = read_evidence(workspace, attempt)
    listed = {a.path: a.sha256 for a in evidence.artifacts}.get(f"artifacts/{name}")
    if listed is None:
        return None
    path = workspace.attempt(attempt.stage, attempt.number) / "artifacts" / name
    data = path.read_bytes() if path.is_file() else b""
    if sha256_bytes(data) != listed:
        raise Refused(
            f"{path} is {'not what was published' if data else 'missing'}",
            "restore it from a backup, or measure again: `gatewright rework --stage stress_test`",
        )
    return data


# -- the ladder's record


def new_rungs(ledger: Ledger, workspace: Workspace, stage: str, attempt: int, folder: Path) -> list[MemoryRung]:
    """The rungs of an attempt that are not recorded yet, from the `ladder.jsonl` in `folder`; none where the approved
    configuration ran."""
    path = folder / LADDER
    if stage != STAGE or not path.is_file():
        return []
    rungs = read_lines(path)
    if len(rungs) < 2:
        return []
    events = (event.read() for event in ledger.events(workspace.run) if event.kind == MemoryRung.kind)
    known = {e.number for e in events if isinstance(e, MemoryRung) and (e.stage, e.attempt) == (stage, attempt)}
    return [
        MemoryRung(
            stage=stage,
            attempt=attempt,
            number=rung["number"],
            rung=rung["rung"],
            changes=rung["changes"],
            outcome=rung["outcome"],
            why=rung["why"],
            taken=rung["taken"],
        )
        for rung in rungs
        if rung["number"] not in known
    ]


# -- the trials' record


def new_trials(ledger: Ledger, workspace: Workspace, stage: str, attempt: int, folder: Path) -> list[TrialEnded]:
    """The small trials of an attempt that are not recorded yet, from the `trials.jsonl` in `folder`, its artifacts or
    its working folder."""
    path = next((p for p in (folder / TRIALS, folder / "trials" / TRIALS) if p.is_file()), None)
    if stage != DRY_RUN or path is None:
        return []
    events = (event.read() for event in ledger.events(workspace.run) if event.kind == TrialEnded.kind)
    known = {e.number for e in events if isinstance(e, TrialEnded) and (e.stage, e.attempt) == (stage, attempt)}
    return [
        TrialEnded.model_validate({**trial, "stage": stage, "attempt": attempt, "why": redacted(trial["why"])})
        for trial in read_lines(path)
        if trial["number"] not in known
    ]


# -- what accounts learnt


def calibrations_of(workspace: Workspace, ledger: Ledger, project: str) -> list[Calibration]:
    """What the stress tests of this run, superseded ones included, and of the project's earlier runs taught; the newest
    first. A run whose files are gone or were changed teaches nothing."""
    found = _of_run(workspace, fold(ledger.events(workspace.run)))
    seen = 0
    for row in runs_of_project(ledger, workspace, project):
        other = Workspace(workspace.project_dir, row.run)
        if row.run == workspace.run or not other.folder.is_dir():
            continue
        found += _of_run(other, fold(ledger.events(row.run)))
        seen += 1
        if seen == RUNS:
            break
    return found


def _of_run(workspace: Workspace, state: RunState) -> list[Calibration]:
    from tasks.stress.calibration import read_calibration

    found = []
    for attempt in reversed(state.attempts.get(STAGE, [])):
        if not attempt.evidence:
            continue
        try:
            data = published_bytes(workspace, attempt, CALIBRATION)
            if data is not None:
                found.append(read_calibration(json.loads(data), sha256_bytes(data)))
        except (GatewrightError, OSError, ValueError, KeyError):
            continue
    return found
