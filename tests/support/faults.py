"""Power losses at every place where something is made durable; the places are found by watching an unharmed run.

Watched: every write transaction of the ledger (inside it, before and after its commit), every fsync, rename, replace
and removal. A place is named by the calls of our own code that lead there, so each distinct write site is one place.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy.engine
from sqlalchemy import event
from sqlalchemy.engine.default import DefaultDialect

ROOT = Path(__file__).resolve().parents[2]
OURS = tuple(str(ROOT / name) + os.sep for name in ("specs", "tasks", "agents", "flows"))
DEPTH = 6
WRITES = ("INSERT", "UPDATE", "DELETE")


@dataclass(frozen=True)
class Place:
    """One write site and the moment at it: `before`, `inside` or `after`."""

    site: str
    moment: str

    def __str__(self) -> str:
        return f"{self.moment} {self.site}"


class Watch:
    """Counts every place that is passed; at the chosen passing of the chosen place the process is killed."""

    def __init__(self, kill_at: Place | None = None, passing: int = 1) -> None:
        self.kill_at, self.passing = kill_at, passing
        self.seen: Counter[Place] = Counter()
        self._dirty = threading.local()

    def passed(self, what: str, moment: str, damage: Callable[[], None] = lambda: None) -> None:
        """At a place. `damage` is what a power loss may leave of a write that was not synced."""
        place = Place(f"{what} {_calls()}", moment)
        self.seen[place] += 1
        if place == self.kill_at and self.seen[place] == self.passing:
            damage()
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> Watch:
        """Watch this process from here on."""
        for name in ("rename", "replace", "unlink", "rmdir"):
            self._watch(name)
        real = os.fsync

        def fsync(handle: Any) -> None:
            number = handle if isinstance(handle, int) else handle.fileno()
            self.passed("fsync", "before")
            if part := _part(number):
                self.passed("fsync", "inside", lambda: os.truncate(part, os.path.getsize(part) // 2))
            real(handle)
            self.passed("fsync", "after")

        os.fsync = fsync
        self._watch_database()
        return self

    def _watch(self, name: str) -> None:
        real = getattr(os, name)

        def watched(*given: Any, **more: Any) -> Any:
            self.passed(name, "before")
            answer = real(*given, **more)
            self.passed(name, "after")
            return answer

        setattr(os, name, watched)

    def _watch_database(self) -> None:
        @event.listens_for(sqlalchemy.engine.Engine, "after_cursor_execute")
        def _written(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            if statement.lstrip().upper().startswith(WRITES):
                self._dirty.yes = True
                self.passed("transaction", "inside")

        real = DefaultDialect.do_commit

        def do_commit(dialect: Any, connection: Any) -> None:
            dirty, self._dirty.yes = getattr(self._dirty, "yes", False), False
            if dirty:
                self.passed("commit", "before")
            real(dialect, connection)
            if dirty:
                self.passed("commit", "after")

        DefaultDialect.do_commit = do_commit  # type: ignore[method-assign]


def _calls() -> str:
    """The innermost calls of our own code, outermost first."""
    found: list[str] = []
    frame = sys._getframe(2)
    while frame is not None and len(found) < DEPTH:  # type: ignore[redundant-expr]
        code = frame.f_code
        if code.co_filename.startswith(OURS):
            found.append(f"{Path(code.co_filename).stem}.{code.co_name}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return " > ".join(reversed(found))


def _part(handle: int) -> str:
    """The path of a file that is still being written; a power loss may leave half of it. Else nothing."""
    try:
        path = os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return ""
    return path if path.endswith(".part") else ""


def forked(work: Callable[[], int]) -> int:
    """Do `work` in a fork of this process; its exit code, negative for the signal that ended it."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = work()
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
