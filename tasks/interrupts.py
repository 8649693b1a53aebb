"""A request to stop, for the whole process: set by signals, read by everything that takes long.

The command line installs the handlers around a run. A second Ctrl-C says so and changes nothing: a save that has
begun is never cut. Ctrl-Z says first that a pause frees nothing, and pauses when it is pressed again.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from specs.errors import Stopped

SIGNALS: tuple[str, ...] = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
"""By name: a system that lacks one of them ignores it. SIGUSR1 is the usual warning before a time limit of Slurm
(`--signal=USR1@120`)."""

PAUSE_WARNING = (
    "Ctrl-Z would only pause: the worker keeps the memory of its device. Ctrl-C saves and stops; Ctrl-Z again pauses "
    "(`fg` goes on)"
)


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

    def wait(self, timeout_s: float) -> bool:
        """Wait for a request, but not longer than this; whether there is one."""
        return self._event.wait(timeout_s)

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
    """Turn the signals of `SIGNALS` into a stop request while the block runs; handlers are put back after it.

    Outside the main thread, where Python allows no handlers, the block runs without them. A hangup that was ignored
    when the block began (`nohup`) stays ignored. `say` tells the person what happens; it is called inside the
    handler, so it must only write. With it, Ctrl-Z is answered by `PAUSE_WARNING` before it pauses.
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
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is signal.SIG_IGN:
        numbers.remove(hangup)
    before = {number: signal.signal(number, handle) for number in numbers}
    if say and hasattr(signal, "SIGTSTP"):
        before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, _warn_before_pause(say))
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _warn_before_pause(say: Callable[[str], None]) -> Callable[[int, FrameType | None], None]:
    warned = False

    def pause(number: int, frame: FrameType | None) -> None:
        nonlocal warned
        if not warned:
            warned = True
            say(PAUSE_WARNING)
            return
        ours = signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # the process stands still in this call until it is continued
        signal.signal(number, ours)

    return pause
