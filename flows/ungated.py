"""Run one stage by itself: the same code and the same report, marked ungated, outside any run's folders."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from agents.proposer import make_proposer
from flows import runner
from flows.ledger import Ledger
from flows.proposing import memory_of, model_of, proposer_context
from flows.state import RunState, fold
from flows.workspace import Workspace, ledger_url
from specs.errors import InputError
from specs.loading import LoadedProject, load_project
from specs.results import Evidence
from specs.stages import Progress
from tasks.registry import definition


@dataclass(frozen=True)
class UngatedWorkspace(Workspace):
    """Folders of a stage that runs by itself: `<project>/ungated/<time>`."""

    @property
    def folder(self) -> Path:
        """Beside the runs, never inside one."""
        return self.project_dir / "ungated" / self.run


def run_ungated(project: Path, stage: str, run: str | None, progress: Progress) -> tuple[Path, Evidence]:
    """Run a stage with the rules' proposal on the inputs of a run. Returns the folder and its evidence.

    Raises `InputError` when the stage needs inputs and no run with them is named, or a person to do it.
    """
    loaded = load_project(project)
    added = loaded.spec.added_stages.get(stage)
    if added is not None and added.hand_out is not None:
        raise InputError(f"{stage} is work of a person, which only a run hands out", "`gatewright run` waits for it")
    needed = definition(loaded.spec, stage).inputs
    source, state = _source(loaded, run, list(needed.values()))
    inputs = {}
    for name, given in needed.items():
        attempt = state.current(given)
        if attempt is None or attempt.state != "published":
            raise InputError(f"{stage} needs {given}, which {source.run} has not published", "name another --run")
        inputs[name] = source.attempt(given, attempt.number)
    context = proposer_context(source, loaded.spec, state, stage)
    proposal = make_proposer(loaded.spec, memory_of(source, loaded.spec)).propose(context)
    workspace = UngatedWorkspace(loaded.folder, f"{datetime.now():%Y%m%d-%H%M%S-%f}")
    order = runner.Order(
        workspace=workspace,
        spec=loaded.spec,
        stage=stage,
        attempt=1,
        proposal=proposal,
        gate_document=None,
        inputs=inputs,
        model=model_of(source, loaded.spec, progress),
        expected=proposal.expected,
        gated=False,
        notes=("ran by itself: no person approved it, and no run or release can use it",),
    )
    evidence = runner.run_attempt(order, progress, lambda evidence: None)
    return workspace.attempt(stage, 1), evidence


def _source(loaded: LoadedProject, run: str | None, needed: list[str]) -> tuple[Workspace, RunState]:
    """The run whose attempts are the inputs, in the ledger that the spec names; an empty one where none is needed."""
    project_dir = loaded.folder
    if run is None:
        if needed:
            raise InputError(f"this stage reads {', '.join(needed)}", "say whose with --run RUN")
        return Workspace(project_dir, "none"), RunState()
    place = ledger_url(project_dir, loaded.spec)
    shared = not isinstance(place, Path)  # a database that several projects share
    known = Ledger.open(place) if shared or Path(place).is_file() else None
    rows = known.runs() if known else []
    if known is None or not any(r.run == run and (not shared or r.project_dir == project_dir) for r in rows):
        raise InputError(f"{run!r} is not a run of {project_dir}", "`gatewright runs` lists the runs")
    return Workspace(project_dir, run), fold(known.events(run))
