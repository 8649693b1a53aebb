"""Stages that wait for nothing of each other run side by side: a thread each, whose work is in worker processes."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import TracebackType

from flows.steps import RunStage
from specs.stages import Progress
from tasks.interrupts import STOP

POLL_S = 1.0
"""How often a process whose stages run looks whether a person decided meanwhile."""


class Beside:
    """The stages that run now. `do` does one step; what it raises is raised by `wait`."""

    def __init__(self, do: Callable[[RunStage], None]) -> None:
        self._do = do
        self._pool = ThreadPoolExecutor(thread_name_prefix="stage")
        self._running: dict[str, Future[None]] = {}

    @property
    def running(self) -> frozenset[str]:
        """The names of the stages that run."""
        return frozenset(self._running)

    def start(self, step: RunStage) -> None:
        """Begin a stage. Its thread sees what this one sees: Prefect finds its flow run there."""
        context = contextvars.copy_context()
        self._running[step.stage] = self._pool.submit(context.run, self._do, step)

    def wait(self) -> None:
        """Until a stage ends, but no longer than it takes to look again."""
        done = wait(self._running.values(), POLL_S, FIRST_COMPLETED).done
        for stage in [stage for stage, future in self._running.items() if future in done]:
            self._running.pop(stage).result()

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None and self._running:
            STOP.request("the run cannot go on")
        self._pool.shutdown()


class Lines:
    """The progress of a stage that runs beside others: one line for each piece of work, under the stage's name."""

    def __init__(self, under: Progress, stage: str) -> None:
        self._under, self._stage = under, stage

    def start(self, what: str, total: int | None = None) -> None:
        """A line; bars of several stages would write over each other."""
        self.say(what)

    def advance(self, units: int = 1, note: str = "") -> None:
        """Not shown."""

    def say(self, text: str) -> None:
        """One line for the person watching."""
        self._under.say(text if text.startswith(self._stage) else f"{self._stage}: {text}")


def shown(progress: Progress, stage: str) -> Progress:
    """How a stage shows its progress: as ever in the main thread, by lines beside others."""
    return progress if threading.current_thread() is threading.main_thread() else Lines(progress, stage)
