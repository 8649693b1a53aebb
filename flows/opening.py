"""What an open gate shows, as the document whose digest a decision names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows import gatefiles, runner
from flows.reviewing import read_evidence
from flows.state import Attempt, RunState
from flows.steps import OpenGate
from flows.workspace import Workspace, code_version
from specs.canonical import sha256_file
from specs.decisions import FinishedDocument, GateDocument
from specs.project import Project


def gate_document(
    workspace: Workspace, spec: Project, state: RunState, step: OpenGate, base_model: str
) -> GateDocument:
    """Digests of everything that the person at a gate is shown, and of what the stage behind it will run on."""
    finished = state.all_finished(step.gate)
    inputs: dict[str, str] = {} if finished else runner.raw_digests(workspace, spec)
    for attempt in finished:
        inputs |= read_evidence(workspace, attempt).inputs
    inputs |= runner.general_digests(workspace, spec, step.gate)
    inputs |= runner.added_digests(workspace, spec, step.gate)
    shown = [_finished(workspace, attempt) for attempt in finished]
    first = shown[0] if shown else None
    return GateDocument(
        run=workspace.run,
        gate=step.gate,
        round=step.round,
        finished_stage=first.stage if first else None,
        finished_attempt=first.attempt if first else None,
        evidence=first.evidence if first else None,
        report=first.report if first else None,
        report_html=first.report_html if first else None,
        plots=first.plots if first else {},
        also=shown[1:],
        proposal=step.proposal,
        task_sheet=gatefiles.load_proposal(workspace.folder, step.proposal).sheet_file,
        inputs=inputs,
        base_model=base_model,
        code=code_version(),
        spec=sha256_file(workspace.folder / "spec.json"),
        policy=sha256_file(workspace.folder / "policy.json"),
        identity=state.created.identity if state.created else "",
        after=state.head or None,
    )


def _finished(workspace: Workspace, attempt: Attempt) -> FinishedDocument:
    folder: Path = workspace.attempt(attempt.stage, attempt.number)
    named: dict[str, Any] = {
        "evidence": sha256_file(folder / "evidence.json"),
        "report": sha256_file(folder / "report.md"),
        "report_html": sha256_file(folder / "report.html"),
        "plots": {p.name: sha256_file(p) for p in sorted((folder / "plots").iterdir())},
    }
    return FinishedDocument(stage=attempt.stage, attempt=attempt.number, **named)
