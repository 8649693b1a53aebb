"""The training worker: `python -m tasks.training.worker job.json`. It goes on from its newest complete checkpoint."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.interrupts import StopRequest
from tasks.training.checkpoints import CheckpointStore, free_bytes
from tasks.training.job import Job
from tasks.training.logbook import SESSIONS, Logbook
from tasks.worker_side import Channel, ends_at_once, work

if TYPE_CHECKING:
    from tasks.training.session import Session


def main(
    store_type: type[CheckpointStore] = CheckpointStore,
    session_type: type[Session] | None = None,
    free: Callable[[Path], int] = free_bytes,
) -> int:
    """The program. The parameters let a test put a faulty part in its own worker module."""

    def body(job_file: Path, channel: Channel, stop: StopRequest) -> None:
        job = Job.model_validate_json(job_file.read_bytes())
        _one_gpu()
        logbook = Logbook(job.out)
        store = store_type(job.checkpoints, job.training.keep_checkpoints, free)
        with store.locked():
            with ends_at_once(stop, channel, "nothing was loaded yet"):
                channel.start("loading the libraries")
                from tasks.training.session import Session as DefaultSession
                from tasks.training.trainer import RolledBack
            while True:
                store.session = 1 + len(logbook.read(SESSIONS))
                try:
                    result = (session_type or DefaultSession)(job, store, logbook, channel, stop).run()
                except RolledBack as back:
                    channel.say(f"{back}; the steps between are passed over")
                    continue
                channel.result(**result.model_dump())
                return

    return work(body)


def _one_gpu() -> None:
    """One process trains on one GPU. `Trainer` would otherwise spread over all it sees, and change the batch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = "0" if visible is None else visible.split(",")[0]


if __name__ == "__main__":
    sys.exit(main())
