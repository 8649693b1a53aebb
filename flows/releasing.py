"""The release bundle of a run: what the ledger says of it, handed to the builder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from agents.report_texts import stage_title
from agents.stage_report import metric_title
from agents.task_sheet import expected_beside_actual
from flows.audit.release import signer_of
from flows.ledger import Ledger
from flows.proposing import model_of
from flows.rehearsing import is_rehearsal
from flows.reviewing import approved_proposals, evidence_of
from flows.rewritten import rewritten_samples
from flows.state import RunState, fold
from flows.workspace import Workspace, frozen_spec
from specs.decisions import Decision
from specs.errors import Refused
from specs.events import ApprovalRecorded, DecisionRecorded
from specs.parameters import ReleaseParameters, TrainParameters
from specs.project import Project
from specs.proposals import Proposal
from specs.results import Evidence
from specs.stages import Progress
from tasks.evaluate.attestation import Signer
from tasks.evaluate.release import build_release
from tasks.evaluate.release_facts import ReleaseDecision, ReleaseExpectation, ReleaseFacts

SIGNING_KEY = "GATEWRIGHT_SIGNING_KEY"
"""The variable that names the SSH key with which a release is signed; without it the release says it is unsigned."""


def build(workspace: Workspace, ledger: Ledger, progress: Progress) -> str:
    """Build and publish the bundle of an approved release; returns the SHA-256 of its manifest."""
    return build_release(workspace.release, release_facts(workspace, ledger, progress), progress, release_signer())


def release_signer() -> Signer | None:
    """Whoever signs releases here; None where no key is named. Raises `InputError` for a key that cannot sign."""
    key = os.environ.get(SIGNING_KEY, "").strip()
    return signer_of(Path(key)) if key else None


def release_facts(workspace: Workspace, ledger: Ledger, progress: Progress) -> ReleaseFacts:
    """Everything the bundle says that is not in the attempts themselves. Raises `Refused` for a rehearsal."""
    state = fold(ledger.events(workspace.run))
    if is_rehearsal(state):
        raise Refused(
            f"run {workspace.run} is a rehearsal, and nothing of a rehearsal is released",
            "run in earnest: gatewright run, without --rehearse",
        )
    spec = frozen_spec(workspace)
    model = model_of(workspace, spec, progress)
    proposals = approved_proposals(workspace, state)
    evidence = evidence_of(workspace, state)
    training = TrainParameters.model_validate(proposals["train"].parameters).training
    attempts = {stage: workspace.attempt(stage, e.attempt) for stage, e in evidence.items()}
    return ReleaseFacts(
        run=workspace.run,
        project=spec.project,
        language=spec.language,
        base_model=spec.base_model,
        base_model_sha256=model.sha256,
        licence=model.licence,
        method=training.method,
        parent=spec.parent_record,
        data=attempts["data"],
        train=attempts["train"],
        evaluate=attempts["evaluate"],
        verdicts={stage: e.verdicts for stage, e in evidence.items()},
        decisions=decisions_of(ledger, state),
        sheet=_sheet(spec, proposals, evidence),
        rewritten=rewritten_samples(workspace, spec, {stage: e.attempt for stage, e in evidence.items()}),
        code=state.created.code if state.created else "",
        ledger_head=ledger.head(workspace.run),
        merged=ReleaseParameters.model_validate(proposals["release"].parameters).merged_model,
        base_model_folder=model.folder,
        threads=training.threads,
    )


def _sheet(
    spec: Project, proposals: Mapping[str, Proposal], evidence: Mapping[str, Evidence]
) -> list[ReleaseExpectation]:
    """Every number of the signed sheet and of later proposals beside what came, in the order of the stages."""
    sheet = proposals["data"].task_sheet
    return [
        ReleaseExpectation(
            **row.model_dump(include={"stage", "metric", "unit", "signed", "expected", "actual"}),
            stage_title=stage_title(spec.language, row.stage),
            title=metric_title(row.stage, row.metric, spec.language, spec),
        )
        for row in (expected_beside_actual(sheet, evidence, proposals) if sheet else [])
    ]


def decisions_of(ledger: Ledger, state: RunState) -> list[ReleaseDecision]:
    """Every decision of a run, in the order of the ledger; with a quorum, every approval that it is made of."""
    found: list[ReleaseDecision] = []
    waiting: list[tuple[datetime, Decision]] = []
    for event in ledger.events(state.run):
        payload = event.read()
        if isinstance(payload, ApprovalRecorded):
            waiting.append((event.at, payload.decision))
        elif isinstance(payload, DecisionRecorded):
            closing = payload.decision
            counted = [(at, d) for at, d in waiting if d.digest == closing.digest and closing.choice == "approve"]
            found += [_decision(at, d) for at, d in (*counted, (event.at, closing))]
            waiting = []
    return found


def _decision(at: datetime, decision: Decision) -> ReleaseDecision:
    return ReleaseDecision(
        gate=decision.gate,
        round=decision.round,
        choice=decision.choice,
        actor=decision.actor,
        at=at,
        authentication=decision.authentication,
        self_approved=decision.self_approved,
        override=decision.override,
        comment=decision.comment,
        digest=decision.digest,
    )
