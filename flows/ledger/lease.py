"""Who works on a run: the identity of a process, whether it still lives, and the lease it holds."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from specs.errors import GatewrightError, LeaseHeld

if TYPE_CHECKING:
    from types import TracebackType

    from flows.ledger.store import Ledger

HEARTBEAT_S = 30.0
SILENT_AFTER = timedelta(minutes=3)
"""A holder on another host counts as living while its last sign, by the database's clock, is younger than this."""


@dataclass(frozen=True)
class Owner:
    """A process, told apart from a later one with the same number."""

    host: str
    boot: str
    pid: int
    process_start: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> Owner:
    """The identity of the calling process."""
    return Owner(socket.gethostname(), boot_id(), os.getpid(), process_start(os.getpid()) or "")


def boot_id() -> str:
    """Changes with every start of the machine: the kernel's boot id, else the boot time in minutes."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        import psutil

        return str(round(psutil.boot_time() / 60))


def process_start(pid: int) -> str | None:
    """When a process started, by a clock that nobody sets where there is one; None for one that is gone.

    Linux counts ticks since boot; elsewhere it is the wall-clock start in 1/10 s.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            return f"tick {fields[19]}"
        except OSError:
            return f"{process.create_time():.1f}"
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        return "unknown"


def alive(owner: Owner) -> bool:
    """Whether a holder may still work. A process of another host counts as alive: `silent` says more of it."""
    if elsewhere(owner):
        return True
    if not _same_boot(owner.boot, boot_id()):
        return False
    started = process_start(owner.pid)
    return started is not None and started in (owner.process_start, "unknown")


def elsewhere(owner: Owner) -> bool:
    """Whether a holder is of another host, where its process cannot be looked at."""
    return owner.host != socket.gethostname()


def silent(owner: Owner, seen_at: datetime, now: datetime) -> bool:
    """Whether a holder elsewhere has given no sign for too long to be counted as living. Its host may be gone."""
    return elsewhere(owner) and now - seen_at > SILENT_AFTER


def _same_boot(one: str, other: str) -> bool:
    """Boot times are computed from two clocks, so that they may differ by a minute; boot ids may not."""
    if one.isdecimal() and other.isdecimal():
        return abs(int(one) - int(other)) <= 1
    return one == other


@dataclass(frozen=True)
class Holding:
    """Who holds a run, since when, and the last sign that it gave."""

    run: str
    owner: Owner
    taken_at: str
    seen: datetime

    def lives(self, now: datetime) -> bool:
        """Whether the holder may still work."""
        return alive(self.owner) and not silent(self.owner, self.seen, now)

    def require_gone(self, now: datetime, force_dead: bool, reason: str) -> None:
        """Raises `LeaseHeld` unless the holder is dead, or silent on another host and a person says why it is gone."""
        who = f"run {self.run} is worked on by {self.owner} since {self.taken_at}"
        if not alive(self.owner) and force_dead:
            return
        if not elsewhere(self.owner):
            raise LeaseHeld(who, "wait for it, or stop it with `gatewright stop`")
        quiet = (now - self.seen).total_seconds()
        if not silent(self.owner, self.seen, now):
            left = max(1, round(SILENT_AFTER.total_seconds() - quiet))
            raise LeaseHeld(
                f"{who}; its last sign came {max(0, round(quiet))} s ago",
                f"wait for it, or stop it there; if {self.owner.host} is gone, it may be taken over in {left} s",
            )
        if not reason.strip():
            raise LeaseHeld(
                f"{who}; it has been silent since {self.seen.isoformat(timespec='seconds')}",
                f'when {self.owner.host} is gone for good: gatewright resume {self.run} --take-over "why"',
            )


@dataclass(frozen=True)
class Lease:
    """The right to work on a run, until released or taken over. Every append and publish names its `fence`."""

    ledger: Ledger
    run: str
    fence: int
    owner: Owner
    taken_at: str
    taken_over_from: str = ""

    def check(self) -> None:
        """Raises `LeaseHeld` when another process has taken the run over since."""
        self.ledger.check_fence(self.run, self.fence)

    def renew(self) -> bool:
        """Say that the holder lives. False when another process has taken the run over since."""
        return self.ledger.renew_lease(self.run, self.fence)

    def release(self) -> None:
        """Give the run back. Does nothing when it was taken over."""
        self.ledger.release_lease(self.run, self.fence)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


@contextmanager
def beating(lease: Lease, every_s: float = HEARTBEAT_S) -> Iterator[None]:
    """Renew a lease in the background. A beat that the database misses is tried again: only silence counts."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(every_s):
            try:
                if not lease.renew():
                    return  # taken over: the next append or publish says so
            except GatewrightError:
                continue

    thread = threading.Thread(target=beat, name=f"lease of {lease.run}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
