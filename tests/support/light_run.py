"""A whole run in a second or two: the real engine, runner, gates, decisions, ledger and release rename.

Only what needs a model is replaced: the proposer and the numbers it expects after an edit, the five stages (each writes
real files and is recomputed from them; one works in a real worker process), plots, report texts and what goes into the
release bundle.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import agents.reporter
import flows.engine
import flows.guarding
import flows.releasing
import flows.starting
import flows.verifying
import tasks.check
import tasks.plots
from agents.contract import Outcome
from flows.deciding import record
from flows.ledgers import ledger_of_run
from flows.session import Session, open_session
from flows.state import fold
from flows.workspace import Workspace
from specs.canonical import sha256_bytes, sha256_file
from specs.criteria import Metric
from specs.files import publish_folder, write_bytes, write_json
from specs.metrics import STAGES
from specs.project import Project
from specs.proposals import Expectation, Proposal, Reason, TaskSheet
from specs.stages import Progress, StageContext, StageResult
from tasks.models.resolve import ResolvedModel
from tasks.registry import DEFINITIONS
from tasks.workers import run_worker
from tests.support.run_maker import SHA, parameters, sheet_stage

ORDERED = True
WORKER = "tests.support.light_worker"
HOW: dict[str, Any] = {"workers": True, "while_running": lambda context: None}
"""What a test may set: whether `train` uses a worker process; what happens inside a stage."""


def make_project(folder: Path, name: str = "light", ledger: str | None = None, more: str = "") -> Path:
    """A project folder whose spec loads."""
    (folder / "raw").mkdir(parents=True)
    (folder / "raw" / "notes.md").write_text("# Spindle\n\nThe spindle makes a noise. Replace the belt.\n")
    line = f"ledger: {ledger}\n" if ledger else ""
    sources = "sources: [{kind: notes, path: raw/notes.md}]\n"
    (folder / "project.yaml").write_text(f"project: {name}\nbase_model: tiny\n{sources}{line}{more}")
    return folder


def install() -> None:
    """Put the light parts in place, for as long as this process lives."""
    for name in STAGES:
        light = {"run": f"{__name__}:stage", "metrics": f"{__name__}:metrics"}
        DEFINITIONS[name] = DEFINITIONS[name].model_copy(update=light)
    for module, name, part in _parts():
        setattr(module, name, part)


@contextmanager
def installed() -> Iterator[None]:
    """The light parts in place, and the real ones again afterwards."""
    definitions, real = dict(DEFINITIONS), [(module, name, getattr(module, name)) for module, name, _ in _parts()]
    how = dict(HOW)
    install()
    try:
        yield
    finally:
        DEFINITIONS.update(definitions)
        HOW.update(how)
        for module, name, part in real:
            setattr(module, name, part)


def _parts() -> list[tuple[Any, str, Any]]:
    return [
        (flows.engine, "make_proposer", lambda spec, memory: Proposer(spec)),
        (flows.engine, "proposer_context", lambda *given: given[3:6]),
        (flows.engine, "model_of", _model),
        (flows.guarding, "proposer_context", lambda *given, **more: None),
        (flows.guarding, "with_expected", lambda workspace, proposal, context, memory: proposal),
        (flows.verifying, "model_of", _model),
        (tasks.plots, "draw", lambda stage, folder, language: (folder / "plots" / "loss.svg").write_text("<svg/>")),
        (agents.reporter, "write_stage_report", _report),
        (flows.releasing, "build", _build),
        (tasks.check, "check_project", lambda loaded, with_model: tasks.check.CheckReport()),
    ]


class Proposer:
    """Proposes the defaults."""

    def __init__(self, spec: Project) -> None:
        self.spec = spec

    def consider(self, context: tuple[str, int, str]) -> Outcome:
        """`context` is gate, round, feedback."""
        gate, round_, feedback = context
        sheet = TaskSheet(goal="repair", stages=[sheet_stage(name) for name in STAGES]) if gate == "data" else None
        return Outcome(
            proposal=Proposal(
                stage=gate,
                round=round_,
                parameters=self._parameters(gate),
                reasons=[Reason(parameter="seed", text="any", source="rule:seed")],
                expected=[Expectation(metric="loss", value=0.4, unit="nats/token")],
                proposer="rules",
                answers_feedback=feedback,
                task_sheet=sheet,
            )
        )

    def _parameters(self, gate: str) -> dict[str, Any]:
        model = self.spec.parameters_of(gate) if gate in self.spec.added_stages else None
        return model().model_dump(mode="json") if model else parameters(gate)


def _model(workspace: Workspace, spec: Project, progress: Progress | None = None) -> ResolvedModel:
    return ResolvedModel(folder=workspace.project_dir, sha256=SHA, source="tiny", revision="1", licence="MIT")


def stage(context: StageContext, progress: Progress) -> StageResult:
    """Two artifacts that depend on the inputs alone; `train` also saves a checkpoint, in a worker process."""
    HOW["while_running"](context)
    seen = {name: sha256_file(folder / "artifacts" / "result.json") for name, folder in context.inputs.items()}
    result = {"stage": context.stage, "inputs": seen, "metrics": _passing(context.spec, context.stage)}
    if context.stage == "train":
        context.checkpoints_dir.mkdir(parents=True, exist_ok=True)
        write_bytes(context.checkpoints_dir / "5" / "weights.bin", b"weights")
        if HOW["workers"]:
            job = context.out_dir / "job.json"
            write_json(job, {"do": "well"})
            run_worker(WORKER, job, context.logs / "worker.log", progress)
            job.unlink()
    write_json(context.artifacts / "result.json", result)
    (context.artifacts / "more.txt").write_text(f"more of {context.stage}")
    return StageResult(notes=[])


def metrics(folder: Path, inputs: Mapping[str, Path], context: Mapping[str, Any]) -> dict[str, Metric]:
    """Recomputed from the artifact."""
    found = json.loads((folder / "artifacts" / "result.json").read_bytes())["metrics"]
    return {name: Metric(value=value, unit="count") for name, value in found.items()}


def _passing(spec: Project, stage: str) -> dict[str, float]:
    """A value for every criterion of a stage that passes it."""
    shift = {"<": -1.0, "<=": 0.0, ">": 1.0, ">=": 0.0, "==": 0.0, "!=": 1.0}
    return {c.metric: c.bound + shift[c.op] for c in spec.criteria(stage)}


def _report(folder: Path, evidence: Any, expected: Any, spec: Any) -> None:
    write_bytes(folder / "report.md", f"# {evidence.stage}".encode())
    write_bytes(folder / "report.html", f"<h1>{evidence.stage}</h1>".encode())


def _build(workspace: Workspace, ledger: Any, progress: Progress) -> str:
    """The same promise as the real one: an intact bundle that is there already is kept."""
    target = workspace.release
    if not target.exists():
        partial = target.with_name("release.partial")
        weights = (workspace.attempt("train", 1) / "artifacts" / "result.json").read_bytes()
        write_bytes(partial / "adapter.bin", weights)
        listed = {"path": "adapter.bin", "bytes": len(weights), "sha256": sha256_bytes(weights)}
        write_json(partial / "manifest.json", {"files": [listed]})
        publish_folder(partial, target)
    return sha256_file(target / "manifest.json")


def passage(workspace: Workspace, **session: Any) -> Session:
    """One passage that nobody mirrors."""
    from flows.passage import pass_alone

    passing = Session(**session)
    open_session(workspace.run, passing)
    pass_alone(workspace.project_dir, workspace.run, passing)
    return passing


def decide(workspace: Workspace, choice: str = "approve", actor: str = "me", **more: Any) -> dict[str, Any]:
    """A decision on the open gate, as the command line records it."""
    more = {"comment": "seen", "authentication": "terminal", **more}
    return record(workspace, ledger_of_run(workspace), choice=choice, actor=actor, **more)


def begin(project: Path, run: str = "r1") -> Workspace:
    """Start the run, or take the one that was started."""
    workspace = Workspace(project, run)
    known = (workspace.folder / "spec.json").is_file() and ledger_of_run(workspace).knows(run)
    return workspace if known else flows.starting.start_run(project, run)


def complete(project: Path, run: str = "r1") -> Session:
    """Go on to the end of the run, approving every gate that waits. A run that has ended is left as it is."""
    workspace = begin(project, run)
    while True:
        state = fold(ledger_of_run(workspace).events(run))
        if state.terminal:
            return Session(ending="finished" if state.state == "finished" else "rejected")
        session = passage(workspace)
        if session.ending != "waiting":
            return session
        decide(workspace)
