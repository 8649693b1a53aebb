"""Start a run, pass through it in this process, hand it to a worker, or ask its process to stop."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from flows.expiring import expire_if_due
from flows.ledger import Ledger
from flows.ledgers import OPEN_STATES, absent, ledger_of_run, refuse_changed_ledger
from flows.parents import with_parent
from flows.pinning import require_pinned
from flows.rehearsing import is_rehearsal
from flows.session import Session, open_session
from flows.state import NextStep, Wait, WaitForWork, fold, next_steps
from flows.workspace import Workspace, check_run_id, code_version, freeze, ledger_url
from specs.added import by_person
from specs.errors import GatewrightError, InputError, RunOpen, SpecError
from specs.events import RunCreated
from specs.loading import load_project
from specs.project import Project
from tasks.models.resolve import with_commit


def start_run(project: Path, run: str | None, rehearse: float | None = None) -> Workspace:
    """Validate a project, freeze its spec and record a new run. Raises what is wrong, all of it at once.

    `rehearse` is the share of the samples of a rehearsal, which may begin while a run waits at a gate.
    """
    from tasks.check import check_project

    loaded = load_project(project)
    spec = loaded.spec if rehearse is None else rehearsed_spec(loaded.spec, rehearse)
    report = check_project(loaded, with_model=True)
    if report.problems:
        raise SpecError(report.problems)
    name = check_run_id(run or f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}")
    workspace = Workspace(loaded.folder, name)
    place = ledger_url(loaded.folder, loaded.spec)
    if absent(place):  # before an empty one is made there
        refuse_changed_ledger(loaded.folder, loaded.spec.ledger)
    ledger = Ledger.open(place)
    spec = with_commit(with_parent(spec, loaded.folder, ledger), loaded.folder)
    refuse_changed_ledger(loaded.folder, loaded.spec.ledger, [row.run for row in ledger.runs()])
    _refuse_second(ledger, spec, loaded.folder)
    if workspace.folder.exists() and not _left_by_a_crash(workspace, ledger):
        raise InputError(f"{workspace.folder} exists", "choose another --run-id; nothing of a run is overwritten")
    if ledger.knows(name):
        raise RunOpen(f"run {name} exists already in this ledger", "choose another --run-id")
    names = {row.project for row in ledger.runs() if (loaded.folder / "runs" / row.run).is_dir()}
    names.add(loaded.spec.project)  # earlier names too: renaming and moving a project leaves no pin behind
    pinned = [require_pinned(name, loaded.folder, loaded.spec.policy) for name in sorted(names)]
    digests = freeze(workspace, spec)
    graph = loaded.spec.graph
    ledger.create_run(
        name,
        RunCreated(
            project=loaded.spec.project,
            spec=digests["spec"],
            policy=digests["policy"],
            environment=digests["environment"],
            code=code_version(),
            stages=list(graph.stages),
            edges=graph.edges,
            by_person=by_person(loaded.spec.added_stages),
            rehearsal=spec.rehearsal,
            parent=spec.parent or "",
            parent_weights=spec.parent_record.weights_sha256 if spec.parent_record else None,
            solo=loaded.spec.policy.solo,
            policy_pinned=any(pinned),
            identity=secrets.token_hex(16),
        ),
        loaded.folder,
        "gatewright",
    )
    return workspace


def rehearsed_spec(spec: Project, share: float) -> Project:
    """The spec of a rehearsal on a share of the samples. Raises `InputError` for a share that is none."""
    if not 0 < share < 1:
        raise InputError(
            f"{share:g} is not a share of the samples",
            "write it as a part of 1: --rehearse 0.01 takes one of a hundred",
        )
    return spec.model_copy(update={"rehearsal": share})


def _refuse_second(ledger: Ledger, spec: Project, folder: Path) -> None:
    """A project has one open run; a rehearsal may begin beside one in earnest on which nobody works."""
    for row in ledger.runs(spec.project, states=OPEN_STATES):
        held = ledger.lease_holder(row.run)
        if spec.rehearsal is not None and not is_rehearsal(fold(ledger.events(row.run))) and not (held and held[1]):
            continue
        if (folder / "runs" / row.run).is_dir():
            way_out = "or end it: gatewright reject at its gate, gatewright close elsewhere"
        else:
            way_out = f"its folder is not here: restore it, or end it with gatewright close {row.run} --as WHO -m WHY"
        raise RunOpen(
            f"the project {spec.project} has an open run: {row.run} ({row.state})",
            f"go on with it: gatewright resume {row.run} --project {folder}; {way_out}",
        )


def _left_by_a_crash(workspace: Workspace, ledger: Ledger) -> bool:
    """Whether a run's folder holds only what is frozen before the run is recorded, and no ledger knows the run."""
    frozen = {f"{name}.json{part}" for name in ("spec", "policy", "environment") for part in ("", ".part")}
    return {p.name for p in workspace.folder.iterdir()} <= frozen and not ledger.knows(workspace.run)


def pass_through(workspace: Workspace, session: Session, tick: Callable[[float], None] | None = None) -> None:
    """Enter the run's Prefect flow in this process; `session` says how it ended.

    A run that ended, or that waits while nobody can be asked, is answered from the ledger alone. When the Prefect
    server goes away, the passage goes on without it.
    """
    ledger = ledger_of_run(workspace)
    state = fold(ledger.events(workspace.run))
    if state.terminal:
        session.ending = "finished" if state.state == "finished" else "rejected"
        return
    ran_out = expire_if_due(ledger, workspace.run, workspace.folder)
    due = next_steps(state, retry=not session.anew)
    if state.state == "waiting" and session.ask is None and not ran_out and _only_people(due):
        blocked = any(isinstance(step, Wait) and step.blocked for step in due)
        session.ending = "waiting_blocked" if blocked else "waiting"
        return
    from flows import prefect_bridge

    session.progress.start("starting the Prefect server")
    prefect_bridge.connect(tick or (lambda waited_s: None))
    from flows.pipeline import project_run

    parameters = {"project_dir": str(workspace.project_dir), "run": workspace.run}
    open_session(workspace.run, session)
    try:
        flow_run, _new = prefect_bridge.attach(project_run, parameters, state.flow_run, workspace.run)
        prefect_bridge.execute(project_run, flow_run, parameters)
    except Exception as error:
        if not prefect_bridge.is_lost(error):
            raise
        if not session.entered:
            from flows.passage import pass_alone

            session.progress.say("the Prefect server no longer answers; the run goes on without it")
            pass_alone(workspace.project_dir, workspace.run, session)


def _only_people(steps: Sequence[NextStep]) -> bool:
    """Whether nothing can be done before a person decides or hands work in."""
    return all(isinstance(step, Wait | WaitForWork) for step in steps)


def deploy() -> str:
    """Register the flow with the work pool of this user's Prefect server."""
    from flows import prefect_bridge

    prefect_bridge.connect()
    root = Path(__file__).resolve().parent.parent
    return prefect_bridge.deploy("flows/pipeline.py:project_run", str(root))


def submit(workspace: Workspace) -> str:
    """Hand a run to a worker; returns the flow run's id."""
    from flows import prefect_bridge

    deploy()
    parameters = {"project_dir": str(workspace.project_dir), "run": workspace.run}
    return prefect_bridge.submit(parameters, workspace.run)


def stop_holder(ledger: Ledger, run: str) -> str | None:
    """Send SIGTERM to the living holder of the lease; returns who it is, None when nobody works on the run."""
    held = ledger.lease_holder(run)
    if held is None:
        return None
    owner, living = held
    if not living:
        return None
    import socket

    if owner.host != socket.gethostname():
        raise GatewrightError(f"{owner} works on this run", f"stop it there: on {owner.host}, gatewright stop {run}")
    os.kill(owner.pid, signal.SIGTERM)
    return str(owner)
