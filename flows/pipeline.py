"""The Prefect flow: one body for the foreground and for a deployment.

It runs from the top at every entry and asks the ledger what comes next; a stage that finished is not run again
and a gate that was decided is not asked again, whatever ended the last process. A Prefect server that dies in the
middle costs its pictures, not the run: the passage goes on without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows import prefect_bridge
from flows.engine import Engine, at_work
from flows.ledgers import ledger_of_run
from flows.passage import drive, internal, perform
from flows.reviewing import gate_facts, page
from flows.session import Session, session_of
from flows.steps import HandOut, NextStep, OpenGate, Propose, Release, RunStage, Wait, place_of
from flows.workspace import Workspace
from specs import events
from specs.errors import GatewrightError
from specs.secrets import redacted
from specs.stage_graph import RELEASE
from tasks import interrupts

_ENGINES: dict[str, Engine] = {}


def _step(run: str, kind: type[NextStep], place: str) -> Any:
    """Do one step inside a Prefect task; an error becomes a state of Prefect and is kept for the person."""
    engine = _ENGINES[run]
    message = perform(engine, kind, place)
    if engine.session.ending == "stopped":
        return prefect_bridge.cancelled(message)
    return prefect_bridge.failed(message) if message else None


@task(name="propose", task_run_name="propose-{gate}-{round}", cache_policy=NO_CACHE, persist_result=False)
def propose(run: str, gate: str, round: int) -> Any:
    """The agent's proposal for the next stage."""
    return _step(run, Propose, gate)


@task(name="open gate", task_run_name="gate-{gate}-{round}", cache_policy=NO_CACHE, persist_result=False)
def open_gate(run: str, gate: str, round: int) -> Any:
    """What the person is shown is written and the gate opens."""
    return _step(run, OpenGate, gate)


@task(name="stage", task_run_name="{stage}-{attempt}", cache_policy=NO_CACHE, persist_result=False)
def run_stage(run: str, stage: str, attempt: int) -> Any:
    """One attempt of a stage."""
    return _step(run, RunStage, stage)


@task(name="hand out", task_run_name="hand-out-{stage}-{round}", cache_policy=NO_CACHE, persist_result=False)
def hand_out(run: str, stage: str, round: int) -> Any:
    """What a person needs for the work of a stage is written."""
    return _step(run, HandOut, stage)


@task(name="release", cache_policy=NO_CACHE, persist_result=False)
def release(run: str) -> Any:
    """The release bundle."""
    return _step(run, Release, RELEASE)


class PrefectMirror:
    """Each step is a Prefect task, as long as the server answers; after that the steps are done without it."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.lost = False

    def do(self, engine: Engine, step: NextStep) -> None:
        """One step as a task. When the server goes away, the step is done here unless it is done already."""
        if not self.lost:
            try:
                return self._as_task(step)
            except Exception as error:
                self._lose(engine, step, error)
        if engine.session.error is None:
            perform(engine, type(step), place_of(step))
        return None

    def _as_task(self, step: NextStep) -> None:
        if isinstance(step, Propose):
            propose(self.run, step.gate, step.round, return_state=True)
        elif isinstance(step, OpenGate):
            open_gate(self.run, step.gate, step.round, return_state=True)
        elif isinstance(step, HandOut):
            hand_out(self.run, step.stage, step.round, return_state=True)
        elif isinstance(step, RunStage):
            run_stage(self.run, step.stage, step.attempt, return_state=True)
        elif isinstance(step, Release):
            release(self.run, return_state=True)

    def waiting(self, engine: Engine, step: Wait) -> None:
        """The gate's page as an artifact of the flow run."""
        if self.lost:
            return
        text = page(gate_facts(engine.workspace, engine.ledger, step.gate))
        key, what = f"gate-{step.gate}-{step.round}", f"gate {step.gate}, round {step.round}"
        try:
            prefect_bridge.publish_markdown(key, text, what)
        except Exception as error:
            self._lose(engine, step, error)

    def _lose(self, engine: Engine, step: NextStep, error: Exception) -> None:
        """From here on without Prefect, and the ledger says so. Raises `error` when it is none of the connection."""
        if not prefect_bridge.is_lost(error):
            raise error
        self.lost = True
        prefect_bridge.stop_retrying()
        words = "the Prefect server no longer answers; the run goes on without it"
        engine.session.progress.say(words)
        engine.append(
            events.FallbackTaken(
                stage=place_of(step),
                what="mirror the run in Prefect",
                why=redacted(f"the server no longer answers: {type(error).__name__}"),
                instead="the run goes on; the ledger is the record",
            )
        )


@flow(name="gatewright-run", persist_result=False, validate_parameters=False)
def project_run(project_dir: str, run: str) -> Any:
    """One passage of a project through its stages, from wherever the ledger says it stands."""
    session = session_of(run)
    session.entered = True
    flow_run, deployed = prefect_bridge.current_flow_run()
    mirror = PrefectMirror(run)
    leave = None
    try:
        with (
            interrupts.stop_on_signals(say=session.progress.say),
            at_work(Path(project_dir), run, session.take_over) as engine,
        ):
            _ENGINES[run] = engine
            engine.append(events.PrefectAttached(flow_run=flow_run, reason="deployed" if deployed else "foreground"))
            leave = drive(engine, mirror)
    except GatewrightError as error:
        session.ending, session.error = "failed", error
    except Exception as error:
        session.ending, session.error = "failed", internal(Workspace(Path(project_dir), run), error)
    finally:
        _ENGINES.pop(run, None)
    return _tell_prefect(Workspace(Path(project_dir), run), session, mirror, leave)


def _tell_prefect(workspace: Workspace, session: Session, mirror: PrefectMirror, leave: tuple[str, str] | None) -> Any:
    if mirror.lost:
        raise prefect_bridge.PrefectLost("the Prefect server went away")
    if leave:
        at_gate = session.ending in ("waiting", "waiting_blocked")
        prefect_bridge.leave(*leave, decided=lambda: at_gate and _decided(workspace))
    if session.ending == "rejected":
        return prefect_bridge.cancelled("rejected by a person")
    if session.error is not None:
        return prefect_bridge.failed(redacted(session.error.message))
    return None


def _decided(workspace: Workspace) -> bool:
    """Whether the gate at which this passage ended is closed by now."""
    ledger = ledger_of_run(workspace)
    try:
        return ledger.run(workspace.run).state != "waiting"
    finally:
        ledger.close()
