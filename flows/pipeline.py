"""The Prefect flow: one body for the foreground and for a deployment.

It runs from the top at every entry and asks the ledger what comes next; a stage that finished is not run again
and a gate that was decided is not asked again, whatever ended the last process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows import prefect_bridge
from flows.engine import Engine, at_work
from flows.reviewing import gate_facts, page
from flows.session import Session, session_of
from flows.steps import Done, OpenGate, Propose, RecordVerdicts, Rejected, Release, RunStage, Wait
from flows.workspace import GATES, Workspace
from specs import events
from specs.errors import GatewrightError, Stopped
from tasks import interrupts

_ENGINES: dict[str, Engine] = {}


def _step(run: str, work: Any) -> Any:
    """Do one step inside a Prefect task; an error becomes a Failed state and is kept for the person."""
    engine = _ENGINES[run]
    try:
        work(engine)
    except Stopped as error:
        engine.session.ending, engine.session.error = "stopped", error
        return prefect_bridge.cancelled(error.message)
    except GatewrightError as error:
        engine.session.error = error
        return prefect_bridge.failed(error.message)
    except Exception as error:
        engine.session.error = _internal(engine.workspace, error)
        return prefect_bridge.failed(f"internal error: {error}")
    return None


def _internal(workspace: Workspace, error: Exception) -> GatewrightError:
    import traceback

    log = workspace.log
    with log.open("a", encoding="utf-8") as file:
        file.write("".join(traceback.format_exception(error)) + "\n")
    return GatewrightError(f"internal error: {type(error).__name__}: {error}", f"details are in {log}")


@task(name="propose", task_run_name="propose-{gate}-{round}", cache_policy=NO_CACHE, persist_result=False)
def propose(run: str, gate: str, round: int) -> Any:
    """The agent's proposal for the next stage."""
    return _step(run, lambda engine: _as(engine, Propose, engine.propose))


@task(name="open gate", task_run_name="gate-{gate}-{round}", cache_policy=NO_CACHE, persist_result=False)
def open_gate(run: str, gate: str, round: int) -> Any:
    """What the person is shown is written and the gate opens."""
    return _step(run, lambda engine: _as(engine, OpenGate, engine.open_gate))


@task(name="stage", task_run_name="{stage}-{attempt}", cache_policy=NO_CACHE, persist_result=False)
def run_stage(run: str, stage: str, attempt: int) -> Any:
    """One attempt of a stage."""
    return _step(run, lambda engine: _as(engine, RunStage, engine.run_stage))


@task(name="release", cache_policy=NO_CACHE, persist_result=False)
def release(run: str) -> Any:
    """The release bundle."""
    return _step(run, lambda engine: _as(engine, Release, engine.release))


def _as(engine: Engine, kind: type, work: Any) -> None:
    """Do the step only if it is still what the ledger asks for."""
    step = engine.next()
    if isinstance(step, kind):
        work(step)


@flow(name="gatewright-run", persist_result=False, validate_parameters=False)
def project_run(project_dir: str, run: str) -> Any:
    """One passage of a project through its stages, from wherever the ledger says it stands."""
    session = session_of(run)
    flow_run, deployed = prefect_bridge.current_flow_run()
    try:
        with interrupts.stop_on_signals(say=session.progress.say), at_work(Path(project_dir), run) as engine:
            _ENGINES[run] = engine
            engine.append(events.PrefectAttached(flow_run=flow_run, reason="deployed" if deployed else "foreground"))
            leave = _drive(engine, session)
    except GatewrightError as error:
        session.ending, session.error = "failed", error
        return prefect_bridge.failed(error.message)
    except Exception as error:
        session.ending, session.error = "failed", _internal(Workspace(Path(project_dir), run), error)
        return prefect_bridge.failed(session.error.message)
    finally:
        _ENGINES.pop(run, None)
    if leave:
        prefect_bridge.leave(*leave)
    if session.ending == "rejected":
        return prefect_bridge.cancelled("rejected by a person")
    if session.error is not None:
        return prefect_bridge.failed(session.error.message)
    return None


def _drive(engine: Engine, session: Session) -> tuple[str, str] | None:
    """Step until the run ends or must wait; returns (key, message) when the flow run should be left paused."""
    run = engine.workspace.run
    while True:
        step = engine.next()
        if isinstance(step, Done | Rejected):
            engine.end(step)
            session.ending = "finished" if isinstance(step, Done) else "rejected"
            return None
        if isinstance(step, RecordVerdicts):
            engine.record_verdicts(step)
            continue
        if _until_reached(step, session.until):
            session.ending = "until"
            return "until", f"{session.until} is done"
        if interrupts.STOP.requested():
            session.ending, session.error = "stopped", Stopped("stopped on request", "go on: gatewright resume")
        elif isinstance(step, Wait):
            if session.ask is not None and session.ask():
                continue
            return _wait(engine, session, step)
        else:
            _dispatch(run, step)
        if session.error is not None:
            return _ended(engine, session, step)


def _dispatch(run: str, step: Any) -> None:
    if isinstance(step, Propose):
        propose(run, step.gate, step.round, return_state=True)
    elif isinstance(step, OpenGate):
        open_gate(run, step.gate, step.round, return_state=True)
    elif isinstance(step, RunStage):
        run_stage(run, step.stage, step.attempt, return_state=True)
    elif isinstance(step, Release):
        release(run, return_state=True)


def _ended(engine: Engine, session: Session, step: Any) -> tuple[str, str] | None:
    if session.ending == "stopped":
        stage = getattr(step, "stage", None) or getattr(step, "gate", "release")
        engine.append(events.RunStopped(stage=stage, reason=session.error.message if session.error else ""))
        return "stopped", "stopped on request"
    session.ending = "failed"
    return None


def _wait(engine: Engine, session: Session, step: Wait) -> tuple[str, str]:
    session.ending = "waiting_blocked" if step.blocked else "waiting"
    text = page(gate_facts(engine.workspace, engine.ledger))
    prefect_bridge.publish_markdown(f"gate-{step.gate}-{step.round}", text, f"gate {step.gate}, round {step.round}")
    return f"gate-{step.gate}-{step.round}".replace("_", "-"), f"gate {step.gate} waits for a person"


def _until_reached(step: Any, until: str | None) -> bool:
    """Whether the next step belongs to a gate after the stage that was asked for."""
    if until is None:
        return False
    gate = "release" if isinstance(step, Release) else getattr(step, "gate", None) or getattr(step, "stage", None)
    return gate is not None and GATES.index(gate) > GATES.index(until)
