"""A worker without torch: it does what its job says, to test the conversation between parent and worker."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from specs.errors import ModelError, PeerLost
from tasks.interrupts import StopRequest
from tasks.worker_side import Channel, ends_at_once, work


def body(job: Path, channel: Channel, stop: StopRequest) -> None:
    """`do` is one of the branches below; of several ranks, one for each."""
    order: dict[str, Any] = json.loads(job.read_text())
    rank = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    do = order["do"][rank] if isinstance(order["do"], list) else order["do"]
    job.with_name(f"pid{rank or ''}").write_text(str(os.getpid()))
    if do == "well":
        channel.start("work", 2)
        channel.advance(2, "note")
        print("a library prints")  # noqa: T201
        print("a library logs what it is given:", dict(os.environ), order, file=sys.stderr)  # noqa: T201
        channel.event(seen=1)
        channel.result(environment=dict(os.environ))
    elif do == "user_error":
        raise ModelError("no weights", "download them")
    elif do == "bug":
        raise KeyError("surprise")
    elif do == "memory":
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: 4 GiB")
    elif do == "fill":
        Path(order["group"], "cgroup.procs").write_text(str(os.getpid()))
        held = bytearray(order["bytes"])
        channel.result(held=len(held))
    elif do == "killed":
        print("loading shard 3", file=sys.stderr)  # noqa: T201
        os.kill(os.getpid(), signal.SIGKILL)
    elif do == "wait":
        channel.event(waiting=True)
        while not stop.requested():
            time.sleep(0.01)
        time.sleep(0.2)
        job.with_name("saved").write_text(stop.reason)
        stop.raise_if_requested("all saved")
    elif do == "signalled":
        os.kill(os.getpid(), signal.SIGTERM)
        stop.wait(60)
        stop.raise_if_requested("this rank was asked")
    elif do == "lost":
        time.sleep(0.3)
        raise PeerLost("rank 0 lost the others", "another rank ended")
    elif do == "load":
        with ends_at_once(stop, channel, "nothing is lost"):
            channel.event(loading=True)
            time.sleep(60)
            job.with_name("loaded").write_text("")
    elif do == "hang":
        channel.event(waiting=True)
        time.sleep(600)


def main() -> int:
    """The program."""
    return work(body)


if __name__ == "__main__":
    sys.exit(main())
