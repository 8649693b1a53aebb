"""A worker without torch: it does what its job says, to test the conversation between parent and worker."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from specs.errors import ModelError
from tasks.interrupts import StopRequest
from tasks.worker_side import Channel, ends_at_once, work


def body(job: Path, channel: Channel, stop: StopRequest) -> None:
    """`do` is one of the branches below."""
    order: dict[str, Any] = json.loads(job.read_text())
    do = order["do"]
    job.with_name("pid").write_text(str(os.getpid()))
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
    elif do == "load":
        with ends_at_once(stop, channel, "nothing is lost"):
            channel.event(loading=True)
            time.sleep(600)
    elif do == "hang":
        channel.event(waiting=True)
        time.sleep(600)


def main() -> int:
    """The program."""
    return work(body)


if __name__ == "__main__":
    sys.exit(main())
