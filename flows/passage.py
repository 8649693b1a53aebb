"""One passage through a run: step after step, as the ledger asks, until the run ends or must wait for a person.

Whoever mirrors the run (Prefect, or nobody) only wraps the steps; what they do and in which order is decided here.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from flows.engine import Engine, at_work
from flows.expiring import expire_if_due
from flows.session import Session
from flows.steps import Done, NextStep, OpenGate, Propose, RecordVerdicts, Rejected, Release, RunStage, Wait
from flows.workspace import GATES, Workspace
from specs import events
from specs.errors import GatewrightError, Stopped
from specs.secrets import redacted
from tasks import interrupts

WORK: dict[type, Callable[[Engine, Any], None]] = {
    Propose: lambda engine, step: engine.propose(step),
    OpenGate: lambda engine, step: engine.open_gate(step),
    RunStage: lambda engine, step: engine.run_stage(step),
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
        perform(engine, type(step))

    def waiting(self, engine: Engine, step: Wait) -> None:
        """Nobody to tell."""


def perform(engine: Engine, kind: type[NextStep]) -> str:
    """Do the next step if it is of this kind still; an error is kept in the session. Returns its words, or nothing."""
    session = engine.session
    try:
        step = engine.next()
        if isinstance(step, kind):
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

    The session says how it ended.
    """
    session = engine.session
    while True:
        step = engine.next()
        if isinstance(step, Done | Rejected):
            engine.end(step)
            session.ending = "finished" if isinstance(step, Done) else "rejected"
            return None
        if isinstance(step, RecordVerdicts):
            engine.record_verdicts(step)
            continue
        if until_reached(step, session.until):
            session.ending = "until"
            return "until", f"{session.until} is done"
        if interrupts.STOP.requested():
            session.ending, session.error = "stopped", Stopped("stopped on request", "go on: gatewright resume")
        elif isinstance(step, Wait):
            if expire_if_due(engine.ledger, engine.workspace.run, engine.workspace.folder):
                continue
            if session.ask is not None and session.ask():
                continue
            session.ending = "waiting_blocked" if step.blocked else "waiting"
            mirror.waiting(engine, step)
            return f"gate-{step.gate}-{step.round}".replace("_", "-"), f"gate {step.gate} waits for a person"
        else:
            mirror.do(engine, step)
        if session.error is not None:
            return _ended(engine, session, step)


def _ended(engine: Engine, session: Session, step: Any) -> tuple[str, str] | None:
    if session.ending == "stopped":
        stage = getattr(step, "stage", None) or getattr(step, "gate", "release")
        engine.append(events.RunStopped(stage=stage, reason=session.error.message if session.error else ""))
        return "stopped", "stopped on request"
    session.ending = "failed"
    return None


def until_reached(step: Any, until: str | None) -> bool:
    """Whether the next step belongs to a gate after the stage that was asked for."""
    if until is None:
        return False
    gate = "release" if isinstance(step, Release) else getattr(step, "gate", None) or getattr(step, "stage", None)
    return gate is not None and GATES.index(gate) > GATES.index(until)
