"""One run, one worker: the living are respected, the dead taken over, the overtaken refused."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flows.ledger import Ledger
from flows.ledger.lease import SILENT_AFTER, Lease, Owner, alive, beating, process_start, this_process
from specs.errors import LeaseHeld
from specs.events import FallbackTaken, GateOpened
from tests.support.ledgers import SHA, created

NOTE = FallbackTaken(stage="data", what="x", why="test", instead="nothing")
HOLD = (
    "import sys; from flows.ledger import Ledger;"
    "Ledger.open(sys.argv[1]).take_lease('r1'); print('held', flush=True); input()"
)


def holder(database: Path) -> subprocess.Popen[str]:
    """Another process that holds the lease of r1 until it is killed or its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_living_holder_is_named_and_a_dead_one_taken_over(ledger: Ledger, database: Path):
    other = holder(database)
    try:
        with pytest.raises(LeaseHeld, match=rf"process {other.pid} on {socket.gethostname()} since 20"):
            ledger.take_lease("r1")
        found = ledger.lease_holder("r1")
        assert found is not None
        assert (found[0].pid, found[1]) == (other.pid, True)
    finally:
        other.kill()
    # The killed process is not waited for yet: a zombie works on nothing.
    deadline = time.monotonic() + 30
    while process_start(other.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(LeaseHeld):
        ledger.take_lease("r1", force_dead=False)
    lease = ledger.take_lease("r1")
    other.communicate()
    assert lease.fence == 2
    assert ledger.events("r1")[-1].payload == {
        "version": 1,
        "fence": 2,
        "owner": str(this_process()),
        "taken_over_from": f"process {other.pid} on {socket.gethostname()}",
        "reason": "",
    }


def test_a_stale_fence_writes_nothing(ledger: Ledger):
    old = ledger.take_lease("r1")
    new = ledger.take_lease("r1")
    before = len(ledger.events("r1"))
    for attempt in (
        lambda: ledger.append("r1", NOTE, "gatewright", fence=old.fence),
        lambda: ledger.open_gate("r1", GateOpened(gate="data", round=1, digest=SHA, blocked=False), old.fence),
        old.check,
    ):
        with pytest.raises(LeaseHeld, match="no longer holds"):
            attempt()
    assert len(ledger.events("r1")) == before
    old.release()
    new.check()
    ledger.append("r1", NOTE, "gatewright", fence=new.fence)


def test_a_released_lease_is_free_and_its_fence_is_stale(ledger: Ledger):
    with ledger.take_lease("r1") as lease:
        lease.check()
    assert ledger.lease_holder("r1") is None
    with pytest.raises(LeaseHeld, match="released"):
        ledger.append("r1", NOTE, "gatewright", fence=lease.fence)
    again = ledger.take_lease("r1")
    assert (again.fence, again.taken_over_from) == (2, "")


def test_the_fence_grows_with_every_holder(ledger: Ledger):
    fences = []
    for _ in range(4):
        lease = ledger.take_lease("r1")
        fences.append(lease.fence)
        lease.release()
    assert fences == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"process_start": "tick 1"}, False),
        ({"boot": "another-boot"}, False),
        ({"pid": 2**22 + 5}, False),
        ({"host": "elsewhere", "boot": "another-boot", "pid": 2**22 + 5}, True),
    ],
    ids=["itself", "number used again", "machine restarted", "gone", "another host cannot be known"],
)
def test_a_process_is_told_apart_from_its_number(change: dict[str, object], expected: bool):
    assert alive(replace(this_process(), **change)) is expected


class Clock:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now = datetime(2026, 5, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


ELSEWHERE = Owner("elsewhere", "boot", 1, "tick 1")


def test_a_holder_on_another_host_that_gives_signs_is_never_taken_over(database: Path):
    clock = Clock()
    ledger = Ledger.open(database, clock=clock)
    ledger.create_run("r1", created(), database.parent, "me")
    lease = ledger.take_lease("r1", owner=ELSEWHERE)
    for _ in range(5):
        clock.now += SILENT_AFTER
        assert lease.renew()
        with pytest.raises(LeaseHeld, match="process 1 on elsewhere"):
            ledger.take_lease("r1", take_over="I think it is gone")
    assert ledger.lease_holder("r1") == (ELSEWHERE, True)
    ledger.close()


def test_a_silent_holder_on_another_host_is_taken_over_with_a_recorded_reason_only(database: Path):
    clock = Clock()
    ledger = Ledger.open(database, clock=clock)
    ledger.create_run("r1", created(), database.parent, "me")
    lost = ledger.take_lease("r1", owner=ELSEWHERE)
    clock.now += SILENT_AFTER + timedelta(seconds=1)
    assert ledger.lease_holder("r1") == (ELSEWHERE, False)
    for reason in ("", "  "):
        with pytest.raises(LeaseHeld, match="silent since 2026") as caught:
            ledger.take_lease("r1", take_over=reason)
        assert "--take-over" in caught.value.hint
    lease = ledger.take_lease("r1", take_over="the rented machine was returned")
    payload = ledger.events("r1")[-1].payload
    assert payload["taken_over_from"] == "process 1 on elsewhere"
    assert payload["reason"] == "the rented machine was returned"
    assert not lost.renew()
    with pytest.raises(LeaseHeld):
        ledger.append("r1", NOTE, "gatewright", fence=lost.fence)
    lease.check()
    ledger.close()


def test_a_lease_from_before_heartbeats_counts_from_when_it_was_taken(database: Path):
    clock = Clock()
    ledger = Ledger.open(database, clock=clock)
    ledger.create_run("r1", created(), database.parent, "me")
    ledger.take_lease("r1", owner=ELSEWHERE)
    with ledger.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE leases SET seen_at = NULL")
    assert ledger.lease_holder("r1") == (ELSEWHERE, True)
    clock.now += SILENT_AFTER + timedelta(seconds=1)
    assert ledger.take_lease("r1", take_over="gone").taken_over_from == "process 1 on elsewhere"
    ledger.close()


def test_a_holder_at_work_is_heard_of_until_it_is_taken_over(ledger: Ledger):
    lease = ledger.take_lease("r1")
    heard = threading.Event()

    class Counting(Lease):
        def renew(self) -> bool:
            kept = super().renew()
            heard.set()
            return kept

    watched = Counting(**vars(lease))
    before = ledger.rows_beside("r1")["leases"][0]["seen_at"]
    with beating(watched, every_s=0.01):
        assert heard.wait(30)
    after = ledger.rows_beside("r1")["leases"][0]["seen_at"]
    assert str(after) > str(before)


def test_the_identity_of_a_process_is_stable():
    assert this_process() == this_process()
    assert this_process().pid == os.getpid()
