"""A request to stop, for the whole process: set by signals, read by everything that takes long.

The command line installs the handlers around a run. A second Ctrl-C says so and changes nothing: a save that has
begun is never cut.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from specs.errors import Stopped

SIGNALS: tuple[str, ...] = ("SIGINT", "SIGTERM", "SIGHUP")
"""By name: a system that lacks one of them ignores it."""


class StopRequest:
    """Whether to stop, and why. Safe to set from a signal handler and from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._reason = ""
        self.repeats = 0

    def request(self, reason: str) -> None:
        """Ask for a stop. The first reason stays; later requests are counted."""
        if self._event.is_set():
            self.repeats += 1
            return
        self._reason = reason
        self._event.set()

    def requested(self) -> bool:
        """Whether somebody asked."""
        return self._event.is_set()

    @property
    def reason(self) -> str:
        """The signal's name or the words of who asked; empty before."""
        return self._reason

    def raise_if_requested(self, what: str) -> None:
        """Raise `Stopped` at a point where nothing unsaved is lost; `what` says where the work stands."""
        if self.requested():
            raise Stopped(f"stopped on request ({self.reason}): {what}", "`gatewright resume` goes on from here")

    def clear(self) -> None:
        """Forget the request: the next run in this process starts anew."""
        self._event.clear()
        self._reason = ""
        self.repeats = 0


STOP = StopRequest()
"""The request of this process."""


@contextmanager
def stop_on_signals(stop: StopRequest = STOP, say: Callable[[str], None] | None = None) -> Iterator[StopRequest]:
    """Turn SIGINT, SIGTERM and SIGHUP into a stop request while the block runs; handlers are put back after it.

    Outside the main thread, where Python allows no handlers, the block runs without them. `say` tells the person
    what happens; it is called inside the handler, so it must only write.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        first = not stop.requested()
        name = signal.Signals(number).name
        stop.request(name)
        if say:
            say(f"{name}: stopping as soon as everything is saved" if first else "still saving; nothing is cut short")

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
