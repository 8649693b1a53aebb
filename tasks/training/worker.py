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
from tasks.worker_side import Channel, work

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
        number = 1 + len(logbook.read(SESSIONS))
        store = store_type(job.checkpoints, job.training.keep_checkpoints, free, number)
        with store.locked():
            from tasks.training.session import Session as DefaultSession

            session = (session_type or DefaultSession)(job, store, logbook, channel, stop)
            channel.result(**session.run().model_dump())

    return work(body)


def _one_gpu() -> None:
    """One process trains on one GPU. `Trainer` would otherwise spread over all it sees, and change the batch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = "0" if visible is None else visible.split(",")[0]


if __name__ == "__main__":
    sys.exit(main())
