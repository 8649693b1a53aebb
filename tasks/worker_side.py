"""The worker's side of the conversation with its parent: JSON lines out, a stop request in, errors explained.

Import this before torch: it costs nothing, and a worker listens from its first moment.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from specs.errors import EXIT_DONE, EXIT_INTERNAL, EXIT_STOPPED, GatewrightError, OutOfMemory, WorkerError
from tasks.interrupts import STOP, StopRequest, stop_on_signals
from tasks.out_of_memory import be_the_victim, explained, is_out_of_memory

EXIT_ORPHANED = 143

STOP_POLL_S = 0.05


class Channel:
    """Sends JSON lines to the parent. It is a `Progress`, so that code in a worker reports as code in a stage does."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, kind: str, **message: Any) -> None:
        """One line. A parent that is gone is noticed on stdin, not here."""
        with self._lock, suppress(BrokenPipeError):
            self._stream.write(json.dumps({"type": kind, **message}, ensure_ascii=False) + "\n")
            self._stream.flush()

    def start(self, what: str, total: int | None = None) -> None:
        """A new piece of work of `total` units."""
        self.send("start", what=what, total=total)

    def advance(self, units: int = 1, note: str = "") -> None:
        """`units` more are done."""
        self.send("advance", units=units, note=note)

    def say(self, text: str) -> None:
        """One line for the person watching."""
        self.send("say", text=text)

    def event(self, **message: Any) -> None:
        """Anything for the parent's `on_event`."""
        self.send("event", **message)

    def error(self, error: GatewrightError) -> None:
        """Why the worker ends without a result."""
        facts = error.facts if isinstance(error, OutOfMemory) else {}
        said = {"class": type(error).__name__, "message": error.message, "hint": error.hint, "facts": facts}
        self.send("error", **said)

    def result(self, **message: Any) -> None:
        """What the worker was started for."""
        self.send("result", **message)


def work(body: Callable[[Path, Channel, StopRequest], None]) -> int:
    """Run a worker program on `sys.argv[1]`; returns its exit code. Errors go to the parent, tracebacks to stderr."""
    be_the_victim()
    with _own_stdout() as stream:
        channel = Channel(stream)
        with stop_on_signals():
            threading.Thread(target=_listen, name="parent", daemon=True).start()
            try:
                body(Path(sys.argv[1]), channel, STOP)
            except GatewrightError as error:
                channel.error(error)
                return error.exit_code
            except Exception as error:
                traceback.print_exc()
                channel.error(_explain(error))
                return EXIT_INTERNAL
            finally:
                _DONE.set()
    return EXIT_DONE


@contextmanager
def ends_at_once(stop: StopRequest, channel: Channel, what: str) -> Iterator[None]:
    """While the block runs, a stop request ends the process within moments, inside whatever library call it is.

    Only for blocks in which nothing is written and nothing is lost, as imports and loading; `what` says where the work
    stands. Raises `Stopped` when the request was there before, or came at the very end.
    """
    stop.raise_if_requested(what)
    lock = threading.Lock()
    left = False

    def watch() -> None:
        while not stop.wait(STOP_POLL_S):
            if left:
                return
        with lock:
            if not left:
                try:
                    stop.raise_if_requested(what)
                except GatewrightError as error:
                    channel.error(error)
                    os._exit(EXIT_STOPPED)

    threading.Thread(target=watch, name="ends-at-once", daemon=True).start()
    try:
        yield
    finally:
        with lock:
            left = True
    stop.raise_if_requested(what)


_DONE = threading.Event()
"""Set when everything is said: from then on a parent that closes our stdin is not a parent that died."""


@contextmanager
def _own_stdout() -> Iterator[TextIO]:
    """The real stdout for JSON lines; whatever a library prints goes to stderr."""
    sys.stdout.flush()
    private = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(private, "w", encoding="utf-8", newline="\n") as stream:
        yield stream


def _listen() -> None:
    """Read the parent's words; end of file means that it is gone, and a second writer must not go on."""
    while words := os.read(0, 4096):  # not sys.stdin: its lock would be held at interpreter shutdown
        if b"stop" in words:
            STOP.request("stop requested")
    if not _DONE.is_set():
        os._exit(EXIT_ORPHANED)


def _explain(error: Exception) -> WorkerError:
    if is_out_of_memory(error):
        return explained(error)
    text = (str(error).strip() or type(error).__name__).splitlines()[0][:500]
    return WorkerError(f"{type(error).__name__}: {text}", "the full error is in the worker's log")
