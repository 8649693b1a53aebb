"""What the agent is given when it proposes: everything read from the run, nothing it could change."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from agents.proposer import MemoryFunction, ProposerContext
from flows import gatefiles
from flows.costs import remembered
from flows.earlier import Earlier, earlier_results
from flows.ledger import Ledger
from flows.measured import calibrations_of, proposals_as_run
from flows.reviewing import evidence_of, last_round
from flows.rewritten import as_rewritten
from flows.state import RunState
from flows.surveying import Look, look_once
from flows.workspace import Workspace, live_spec
from specs.credentials import without_secrets
from specs.errors import SpecError
from specs.files import read_document
from specs.parameters import TrainingConfiguration
from specs.project import Project
from specs.proposals import Calibration, MemoryCheck
from specs.stages import Progress, Quiet
from tasks.models.resolve import ResolvedModel, resolve_base_model


def model_of(workspace: Workspace, spec: Project, progress: Progress | None = None) -> ResolvedModel:
    """The base model of a run as a local folder; converted or downloaded once."""
    hub = live_spec(workspace, spec).hub
    return resolve_base_model(spec.base_model, workspace.project_dir, hub, progress or Quiet())


def memory_of(workspace: Workspace, spec: Project, ledger: Ledger | None = None) -> MemoryFunction:
    """The memory account of a training configuration, for the base model and the device of a run.

    With a ledger it is calibrated by the newest stress test of the project on the same device and software.
    """

    @cache
    def folder() -> Path:  # resolving hashes the weights: once is enough
        return model_of(workspace, spec).folder

    @cache
    def learnt() -> list[Calibration]:
        return calibrations_of(workspace, ledger, spec.project) if ledger is not None else []

    def account(training: TrainingConfiguration) -> MemoryCheck:
        from tasks.memory import account_for, this_device
        from tasks.stress.calibration import calibrated, key_of, matching
        from tasks.stress.environment import environment_of

        device = this_device(spec.hardware, spec.launcher.memory_gb)
        check = account_for(folder(), training, device, training.max_length)
        found = matching(learnt(), key_of(environment_of(device, training), training)) if learnt() else None
        return calibrated(check, found) if found else check

    return account


def proposer_context(
    workspace: Workspace,
    spec: Project,
    state: RunState,
    gate: str,
    round: int = 1,
    feedback: str = "",
    ledger: Ledger | None = None,
) -> ProposerContext:
    """The context for one round of a gate. With a ledger, earlier runs of the project correct what is expected.

    The spec in it, which a language model may be shown, has no passwords. Sources are looked through for the gate of
    the stage that reads them; behind it, what that stage counted is known. Raises `SpecError` with what is wrong there.
    """
    from tasks.memory import this_device

    evidence = evidence_of(workspace, state)
    lengths: dict[str, Any] = {}
    if "data" in evidence:
        folder = workspace.attempt("data", evidence["data"].attempt)
        lengths = json.loads((folder / "artifacts" / "summary.json").read_bytes())
        evidence, lengths = as_rewritten(workspace, spec, evidence, lengths)
    trials: dict[str, Any] = {}
    if "dry_run" in evidence:
        trials = read_document(workspace.attempt("dry_run", evidence["dry_run"].attempt) / "artifacts" / "trials.json")
    last = last_round(state, gate, round)
    approved = proposals_as_run(workspace, state, spec)
    model = model_of(workspace, spec)
    looked = look_once(workspace, spec, model) if gate == "data" or "data" not in evidence else Look([], {}, [])
    if looked.problems:
        raise SpecError(looked.problems)
    costs, unread = remembered()
    earlier = earlier_results(ledger, workspace, spec.project) if ledger is not None else Earlier()
    return ProposerContext(
        spec=without_secrets(spec),
        gate=gate,
        round=round,
        feedback=feedback,
        last_proposal=gatefiles.load_proposal(workspace.folder, last) if last else None,
        approved={stage: approved[stage] for stage in state.stages if stage in evidence and stage in approved},
        evidence=evidence,
        source_summaries=looked.summaries,
        lengths=lengths,
        trials=trials,
        survey={} if "data" in evidence else looked.survey,
        base_model=model.folder,
        model_sha256=model.sha256,
        costs=costs,
        costs_unread=unread,
        device=this_device(spec.hardware, spec.launcher.memory_gb).facts(),
        history=earlier.results,
        runs_unread=earlier.unread,
    )
