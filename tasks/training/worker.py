"""The training worker: `python -m tasks.training.worker job.json`, or with ` RANK MEETING` for each of several ranks.

It goes on from its newest complete checkpoint. Rank 0 holds the lock on the checkpoints, and writes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.interrupts import StopRequest
from tasks.training.checkpoints import CheckpointStore, free_bytes
from tasks.training.job import Job
from tasks.training.logbook import SESSIONS, Logbook
from tasks.training.ranks import Seat, join
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
        seat = Seat.read(sys.argv[2:])
        first = seat.rank == 0
        _one_gpu(seat.rank)
        logbook = Logbook(job.out, writes=first)
        store = store_type(job.checkpoints, job.training.keep_checkpoints, free)
        with store.locked() if first else nullcontext():
            with ends_at_once(stop, channel, "nothing was loaded yet"):
                channel.start("loading the libraries")
                from tasks.training.session import Session as DefaultSession
                from tasks.training.trainer import RolledBack

                ranks = join(seat, job.training.ranks, job.collective_timeout_s)
            while True:
                store.session = 1 + len(logbook.read(SESSIONS))
                try:
                    result = (session_type or DefaultSession)(job, store, logbook, channel, stop, ranks).run()
                except RolledBack as back:
                    channel.say(f"{back}; the steps between are passed over")
                    continue
                channel.result(**result.model_dump())
                return

    return work(body)


def _one_gpu(rank: int) -> None:
    """Each rank trains on one GPU of its own. `Trainer` would otherwise spread over all it sees, and change the batch.

    A rank for which there is none sees none; the ranks find out that they are unlike when they meet.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(rank)] if visible is None else visible.split(",")[rank : rank + 1]
    os.environ["CUDA_VISIBLE_DEVICES"] = names[0] if names else ""


if __name__ == "__main__":
    sys.exit(main())
