"""One passage of this process through a run: who watches it, how far it goes, how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from specs.errors import GatewrightError
from specs.stages import Progress, Quiet

Ending = Literal["finished", "waiting", "waiting_blocked", "rejected", "until", "stopped", "failed"]


@dataclass
class Session:
    """How a passage is run and how it ended.

    `until`: stop when this stage is done. `anew`: a stage that failed is proposed anew, not run again. `ask` shows
    the open gate to the person at a terminal and returns whether a decision was recorded. `take_over`: why a silent
    holder of the run on another host is gone. `entered`: the passage began, under Prefect or without.
    """

    progress: Progress = field(default_factory=Quiet)
    until: str | None = None
    anew: bool = False
    ask: Callable[[], bool] | None = None
    take_over: str = ""
    entered: bool = False
    ending: Ending = "failed"
    error: GatewrightError | None = None


_SESSIONS: dict[str, Session] = {}


def open_session(run: str, session: Session) -> None:
    """Make a session known to the flow body, which Prefect calls with plain parameters only."""
    _SESSIONS[run] = session


def session_of(run: str) -> Session:
    """The session of a run in this process; a quiet one for a deployed run."""
    return _SESSIONS.setdefault(run, Session())
