"""A worker as its parent sees it: one process, or one per rank, that live and end together.

Rank 0 speaks for all: its progress, events and result are the worker's. Errors are heard from every rank. A rank that
ends with an error leaves the others waiting for it, some libraries for ever: they may see that by themselves for
`LEFT_S`, then they are ended.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from specs.errors import EXIT_STOPPED, GatewrightError, Stopped
from specs.stages import Progress
from tasks.interrupts import StopRequest
from tasks.out_of_memory import kernel_kills
from tasks.worker_ends import died, said

POLL_S = 0.2
GRACE_S = 60.0
"""How long a worker that has said everything, or was left, may take to end before it is killed."""

LEFT_S = 10.0
"""How long ranks may take to notice that one of them ended before they are ended, and then before they are killed."""

CONSEQUENCE, STOP = "PeerLost", "Stopped"


class Process(Protocol):
    """What is needed of `subprocess.Popen`."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    returncode: int | Any

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code. Raises `subprocess.TimeoutExpired`."""

    def poll(self) -> int | None:
        """Its exit code; null while it runs."""

    def kill(self) -> None:
        """End it, whatever it does."""


@dataclass
class Member:
    """One rank: its process, its log, and the error it sent."""

    rank: int
    process: Process
    log: Path
    error: dict[str, Any] | None = None
    ended_by_us: bool = False
    closed: bool = field(default=False, repr=False)

    @property
    def code(self) -> int:
        """Exit code; 0 for one that we ended: that is no cause of anything."""
        return 0 if self.ended_by_us or self.process.returncode is None else int(self.process.returncode)

    def close_stdin(self) -> None:
        """A worker whose stdin ends takes its parent for dead and ends at once, wherever it is."""
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()


class Family:
    """What the ranks of a worker say, line by line, and what becomes of it."""

    def __init__(
        self,
        members: Sequence[Member],
        progress: Progress,
        on_event: Callable[[dict[str, Any]], None] | None,
        left_s: float = LEFT_S,
    ) -> None:
        self.members = members
        self.left_s = left_s
        self.progress = progress
        self.on_event = on_event
        self.result: dict[str, Any] = {}
        self.asked_to_stop = False
        self.errors: list[Member] = []
        self._lines: queue.Queue[tuple[Member, bytes | None]] = queue.Queue()
        self._left_since: float | None = None
        self.kills = kernel_kills()

    def follow(self, stop: StopRequest) -> None:
        """Read until every rank has closed its stdout. Ctrl-C without handlers counts as a stop request."""
        for member in self.members:
            threading.Thread(target=self._read, args=(member,), name="worker-output", daemon=True).start()
        while not all(member.closed for member in self.members):
            try:
                if stop.requested():
                    self._ask_to_stop(stop.reason)
                self._end_those_left()
                member, line = self._lines.get(timeout=POLL_S)
                if line is None:
                    self._closed(member)
                else:
                    self._take(member, line)
            except queue.Empty:
                continue
            except KeyboardInterrupt:
                stop.request("SIGINT")

    def end(self) -> None:
        """Close every stdin, which makes a worker end at once, and kill what does not. Nothing is left running."""
        for member in self.members:
            member.close_stdin()
        for member in self.members:
            try:
                member.process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
            if member.process.stdout:
                member.process.stdout.close()

    def _read(self, member: Member) -> None:
        assert member.process.stdout is not None
        with contextlib.suppress(OSError, ValueError):  # closed under us after a kill
            for line in member.process.stdout:
                self._lines.put((member, line))
        self._lines.put((member, None))

    def _closed(self, member: Member) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            member.process.wait(GRACE_S)
        member.closed = True
        if member.process.returncode != 0 and self._left_since is None:
            self._left_since = time.monotonic()

    def _end_those_left(self) -> None:
        waited = 0.0 if self._left_since is None else time.monotonic() - self._left_since
        for member in self.members if waited > self.left_s else ():
            if not member.closed and member.process.poll() is None:
                member.ended_by_us = True
                member.close_stdin()
                if waited > 2 * self.left_s:
                    member.process.kill()

    def _ask_to_stop(self, reason: str) -> None:
        if self.asked_to_stop:
            return
        self.asked_to_stop = True
        self.progress.say(f"{reason}: the worker saves its state and ends")
        for member in self.members:
            assert member.process.stdin is not None
            with contextlib.suppress(OSError, ValueError):  # it is ending already
                member.process.stdin.write(b"stop\n")
                member.process.stdin.flush()

    def _take(self, member: Member, line: bytes) -> None:
        try:
            message = json.loads(line)
            kind = message.pop("type")
        except (ValueError, KeyError, AttributeError):
            return
        if kind == "error":
            member.error = message
            self.errors.append(member)
            if message["class"] == STOP and len(self.members) > 1:
                self._ask_to_stop(f"rank {member.rank}")
        elif member.rank != 0:
            return
        elif kind == "start":
            self.progress.start(message["what"], message["total"])
        elif kind == "advance":
            self.progress.advance(message["units"], message["note"])
        elif kind == "say":
            self.progress.say(message["text"])
        elif kind == "result":
            self.result = message
        elif kind == "event" and self.on_event:
            self.on_event(message)

    # -- the end

    def outcome(self, module: str) -> dict[str, Any]:
        """The result, or the error that ended the worker: the cause, not what it led to on other ranks."""
        causes = [m for m in self.errors if m.error and m.error["class"] not in (CONSEQUENCE, STOP)]
        if causes:
            raise self._said(causes[0], named=len(causes) < len(self.members))
        failed = [m for m in self.members if m.code != 0]
        if self.asked_to_stop or any(m.code == EXIT_STOPPED for m in failed):
            for member in sorted(self.errors, key=lambda m: m.rank):
                if member.error and member.error["class"] == STOP:
                    raise self._said(member)
            if failed:
                raise Stopped("stopped on request", "`gatewright resume` goes on from the newest checkpoint")
        unexplained = [m for m in failed if m.error is None]
        if unexplained:
            worst = min(unexplained, key=lambda m: (m.code >= 0, m.rank))
            raise died(self._name(module, worst), worst.code, worst.log, self.kills)
        if self.errors:
            raise self._said(self.errors[0])
        return self.result

    def _said(self, member: Member, *, named: bool = False) -> GatewrightError:
        assert member.error is not None
        rank = f"rank {member.rank} of {len(self.members)}: " if named and len(self.members) > 1 else ""
        return said(rank + member.error["message"], member.error)

    def _name(self, module: str, member: Member) -> str:
        name = f"the worker of {module.rpartition('.')[0] or module}"
        return f"rank {member.rank} of {len(self.members)} of {name}" if len(self.members) > 1 else name


def log_of(log: Path, rank: int) -> Path:
    """Where a rank logs: rank 0 in the worker's log, the others beside it."""
    return log if rank == 0 else log.with_name(f"{log.stem}-rank{rank}{log.suffix}")


@contextlib.contextmanager
def together(
    members: Sequence[Member],
    progress: Progress,
    on_event: Callable[[dict[str, Any]], None] | None,
    left_s: float = LEFT_S,
) -> Iterator[Family]:
    """A family whose members are gone when the block is left, however it is left."""
    family = Family(members, progress, on_event, left_s)
    try:
        yield family
    finally:
        family.end()
