"""Training workers of several ranks that start in a tenth of a second: the real parent, its ranks forked from it.

The parent runs `tasks.workers.run_worker`, with its pipes, its stop requests and its care for ranks that are left
alone; only the imports of the ranks are not done again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from specs.errors import GatewrightError
from specs.stages import Quiet
from tasks.interrupts import SIGNALS, STOP, stop_on_signals
from tasks.workers import run_worker

POLL_S = 0.01
LEFT_S = 3.0


class Forked:
    """A forked rank, as `subprocess.Popen` would show it."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdin: IO[bytes] | None = stdin
        self.stdout: IO[bytes] | None = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code; null while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it has ended."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("rank", timeout or 0)
            time.sleep(POLL_S)
        return code

    def kill(self) -> None:
        """As the system does."""
        os.kill(self.pid, signal.SIGKILL)


def fork(module: str, arguments: list[str], stderr: IO[bytes], environment: dict[str, str]) -> Forked:
    """Start a rank; for `run_worker`."""
    theirs, ours = os.pipe()
    heard, said = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(module, arguments, (theirs, said, stderr.fileno()))
    os.close(theirs)
    os.close(said)
    return Forked(pid, os.fdopen(ours, "wb", buffering=0), os.fdopen(heard, "rb"))


def _become(module: str, arguments: list[str], descriptors: tuple[int, int, int]) -> None:
    """In the child: the descriptors and signals of a new program, then the program."""
    code = 1
    try:
        os.setsid()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os.closerange(3, 1024)
        for name in SIGNALS:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        STOP.clear()
        sys.argv = [module, *arguments]
        code = import_module(module).main()
    finally:
        sys.stderr.flush()
        os._exit(code)


def run_family(module: str, job: str, said: str, log: str) -> None:
    """The program of the parent: runs the worker, and leaves what became of it in `said` as a worker would say it."""
    settings: dict[str, Any] = json.loads(Path(job).read_text("utf-8"))["training"]

    def say(kind: str, **message: Any) -> None:
        with open(said, "a", encoding="utf-8") as file:
            file.write(json.dumps({"type": kind, **message}) + "\n")

    def on_event(message: dict[str, Any]) -> None:
        say("event", **message)

    with stop_on_signals():
        try:
            ranks = settings["ranks"]
            result = run_worker(module, Path(job), Path(log), Quiet(), on_event, ranks=ranks, start=fork, left_s=LEFT_S)
        except GatewrightError as error:
            say("error", **{"class": type(error).__name__, "message": error.message, "hint": error.hint})
            sys.exit(error.exit_code)
    say("result", **result)
