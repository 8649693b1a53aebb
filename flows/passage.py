"""One passage through a run: step after step, as the ledger asks, until the run ends or must wait for a person.

Whoever mirrors the run (Prefect, or nobody) only wraps the steps; what they do and in which order is decided here.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from flows.beside import Beside, shown
from flows.engine import Engine, at_work
from flows.expiring import expire_if_due
from flows.session import Session
from flows.steps import (
    Done,
    HandOut,
    NextStep,
    OpenGate,
    Propose,
    RecordVerdicts,
    Rejected,
    Release,
    RunStage,
    Wait,
    WaitForWork,
    place_of,
)
from flows.workspace import Workspace
from specs import events
from specs.errors import GatewrightError, Stopped
from specs.secrets import redacted
from tasks import interrupts

WORK: dict[type, Callable[[Engine, Any], None]] = {
    Propose: lambda engine, step: engine.propose(step),
    OpenGate: lambda engine, step: engine.open_gate(step),
    HandOut: lambda engine, step: engine.hand_out(step),
    RunStage: lambda engine, step: engine.run_stage(step, shown(engine.session.progress, step.stage)),
    Release: lambda engine, step: engine.release(step),
}
"""How each kind of step is done."""


class Mirror(Protocol):
    """Who watches a passage."""

    def do(self, engine: Engine, step: NextStep) -> None:
        """Do one step by `perform`, wrapped or not."""

    def waiting(self, engine: Engine, step: Wait) -> None:
        """A gate is open and nobody here answers."""


class Alone:
    """Nobody mirrors the run."""

    def do(self, engine: Engine, step: NextStep) -> None:
        """The step itself."""
        perform(engine, type(step), place_of(step))

    def waiting(self, engine: Engine, step: Wait) -> None:
        """Nobody to tell."""


def perform(engine: Engine, kind: type[NextStep], place: str) -> str:
    """Do the step of this kind at this gate or stage if it is due still; an error is kept in the session.

    Returns the words of the error, or nothing.
    """
    session = engine.session
    try:
        for step in engine.steps:
            if isinstance(step, kind) and place_of(step) == place:
                WORK[kind](engine, step)
        return ""
    except Stopped as error:
        session.ending, session.error = "stopped", error
    except GatewrightError as error:
        session.error = error
    except Exception as error:
        session.error = internal(engine.workspace, error)
    return redacted(session.error.message)


def internal(workspace: Workspace, error: Exception) -> GatewrightError:
    """Keep the traceback in the run's log, without secrets, and return an error that a person can read."""
    text = redacted("".join(traceback.format_exception(error)))
    hint = f"details are in {workspace.log}"
    try:
        workspace.log.parent.mkdir(parents=True, exist_ok=True)
        with workspace.log.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as other:
        hint = f"its details could not be kept: {other.strerror}"
    return GatewrightError(redacted(f"internal error: {type(error).__name__}: {error}"), hint)


def pass_alone(project_dir: Path, run: str, session: Session) -> None:
    """A whole passage that nobody mirrors; `session` says how it ended."""
    try:
        with (
            interrupts.stop_on_signals(say=session.progress.say),
            at_work(project_dir, run, session.take_over) as engine,
        ):
            drive(engine, Alone())
    except GatewrightError as error:
        session.ending, session.error = "failed", error
    except Exception as error:
        session.ending, session.error = "failed", internal(Workspace(project_dir, run), error)


def drive(engine: Engine, mirror: Mirror) -> tuple[str, str] | None:
    """Step until the run ends or must wait. Returns (key, message) when it should be left paused, to be entered again.

    Stages that wait for nothing of each other run side by side. The session says how it ended.
    """
    session = engine.session
    with Beside(lambda step: mirror.do(engine, step)) as beside:
        while True:
            steps = engine.steps
            wanted = [s for s in steps if _wanted(engine, s, session.until)]
            due = [s for s in wanted if place_of(s) not in beside.running]
            ready = [s for s in due if not isinstance(s, Wait | WaitForWork)]
            over = session.error is not None or interrupts.STOP.requested()
            if beside.running and (over or not ready or isinstance(ready[0], Done | Rejected)):
                beside.wait()
            elif over:
                return _ended(engine, session, steps[0])
            elif not wanted:
                session.ending = "until"
                return "until", f"{session.until} is done"
            elif ready and isinstance(ready[0], Done | Rejected):
                engine.end(ready[0])
                session.ending = "finished" if isinstance(ready[0], Done) else "rejected"
                return None
            elif ready and isinstance(ready[0], RunStage) and len(steps) > 1:
                beside.start(ready[0])
            elif ready and isinstance(ready[0], RecordVerdicts):
                engine.record_verdicts(ready[0])
            elif ready:
                mirror.do(engine, ready[0])
            elif not _answered(engine, due):
                return _waits(engine, mirror, due)


def _answered(engine: Engine, steps: list[NextStep]) -> bool:
    """Whether a gate was closed meanwhile: its time ran out, or the person at the terminal decided."""
    if expire_if_due(engine.ledger, engine.workspace.run, engine.workspace.folder):
        return True
    ask = engine.session.ask
    return ask is not None and any(isinstance(step, Wait) for step in steps) and ask()


def _waits(engine: Engine, mirror: Mirror, steps: list[NextStep]) -> tuple[str, str]:
    """Nothing is left that could be done without a person."""
    gates = [step for step in steps if isinstance(step, Wait)]
    work = [step.stage for step in steps if isinstance(step, WaitForWork)]
    if engine.state.state != "waiting":  # another stage ended since the gate opened
        engine.append(events.RunWaits(gates=[gate.gate for gate in gates], work=work))
    engine.session.ending = "waiting_blocked" if any(gate.blocked for gate in gates) else "waiting"
    for gate in gates:
        mirror.waiting(engine, gate)
    if not gates:
        return f"work-{work[0]}".replace("_", "-"), f"{work[0]} waits for a person's work"
    first = gates[0]
    return f"gate-{first.gate}-{first.round}".replace("_", "-"), f"gate {first.gate} waits for a person"


def _ended(engine: Engine, session: Session, step: NextStep) -> tuple[str, str] | None:
    if session.error is None:
        session.ending, session.error = "stopped", Stopped("stopped on request", "go on: gatewright resume")
    if session.ending == "stopped":
        engine.append(events.RunStopped(stage=place_of(step), reason=session.error.message))
        return "stopped", "stopped on request"
    session.ending = "failed"
    return None


def _wanted(engine: Engine, step: NextStep, until: str | None) -> bool:
    """Whether a step leads to the stage that was asked for."""
    if until is None or isinstance(step, Done | Rejected):
        return True
    return place_of(step) in (until, *engine.spec.graph.ancestors(until))
