"""The worker of small trials: `python -m tasks.training.trial_worker jobs.json` runs several trainings, one by one.

One process for all of them, because starting one takes longer than such a training. Each ends as it would in a worker
of its own; a training that diverges is a finding (`diverged.json`), not an error. A start after a crash or a stop goes
on with the first one that has not ended; which one died, the parent says (`trial_ends.py`).
"""

from __future__ import annotations

import gc
import shutil
import sys
from pathlib import Path

from pydantic import Field

from specs.base import Strict
from specs.errors import NotFinite, Stopped
from tasks.interrupts import StopRequest
from tasks.training.checkpoints import CheckpointStore
from tasks.training.job import Job
from tasks.training.logbook import SESSIONS, Logbook
from tasks.training.trial_ends import begin, diverge, end_of, finish
from tasks.worker_side import Channel, ends_at_once, work

LEFT_OVERS = ("adapter", "model")
"""What a training exports and nobody needs of a trial."""


class Trials(Strict):
    """`jobs.json`: trainings in the order in which they are run, each with folders of its own."""

    jobs: list[Job] = Field(min_length=1)


def main() -> int:
    """The program."""

    def body(file: Path, channel: Channel, stop: StopRequest) -> None:
        trials = Trials.model_validate_json(file.read_bytes())
        with ends_at_once(stop, channel, "nothing was loaded yet"):
            channel.start("loading the libraries")
            import tasks.training.session  # noqa: F401  what the trainings need, while a stop still ends at once
        for number, job in enumerate(trials.jobs, 1):
            if end_of(job.out) is not None:
                continue
            channel.say(f"trial {number} of {len(trials.jobs)}: {job.out.parent.name}")
            _train(job, channel, stop, number - 1)
        channel.result(trials=len(trials.jobs))

    return work(body)


def _train(job: Job, channel: Channel, stop: StopRequest, before: int) -> None:
    """One training from its beginning; what a crash left of it is taken away first."""
    from tasks.training.session import Session

    for folder in (job.out, job.checkpoints):
        shutil.rmtree(folder, ignore_errors=True)
    logbook = Logbook(job.out)
    begin(job.out)
    store = CheckpointStore(job.checkpoints, job.training.keep_checkpoints)
    store.session = 1 + len(logbook.read(SESSIONS))
    try:
        with store.locked():
            Session(job, store, logbook, channel, stop).run()
    except NotFinite as error:
        diverge(job.out, error.message)
        channel.say(f"{job.out.parent.name} diverged: {error.message}")
    except Stopped as stopped:
        raise Stopped(
            f"stopped on request after {before} trials, which are kept",
            "`gatewright resume` goes on with the next trial",
        ) from stopped
    finish(job.out)
    for name in LEFT_OVERS:
        shutil.rmtree(job.out / name, ignore_errors=True)
    shutil.rmtree(job.checkpoints, ignore_errors=True)
    _give_back()


def _give_back() -> None:
    """Memory of a training that has ended, before the next one begins."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
