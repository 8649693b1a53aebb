"""Tasks of added stages for tests: allowed by `task_packages: [tests.support.added_tasks]`."""

from __future__ import annotations

import time

from specs.stages import Progress
from tasks.added.job import AddedJob, Answer


def sheet(job: AddedJob, progress: Progress) -> Answer:
    """A sheet with one line to fill in."""
    (job.artifacts / "sheet.csv").write_text(f"text,label\n{job.inputs['text'].read_text()},\n")
    return Answer()


def take(job: AddedJob, progress: Progress) -> Answer:
    """What came back, as labels; says who made them."""
    assert job.handed_in is not None
    text = job.handed_in.file.read_text()
    if "broken" in text:
        raise ValueError("this sheet is broken")
    (job.artifacts / "labels.csv").write_text(f"{job.handed_in.author}:{text}")
    return Answer()


def labels(job: AddedJob, progress: Progress) -> Answer:
    """Lines with a label."""
    return Answer(metrics={"labelled": (job.artifacts / "labels.csv").read_text().count("good")})


def forever(job: AddedJob, progress: Progress) -> Answer:
    """Never ends by itself."""
    progress.say("it has begun")
    time.sleep(600)
    return Answer()


def other_number(job: AddedJob, progress: Progress) -> Answer:
    """Computes a metric that nobody declared."""
    return Answer(metrics={"labelled": 1, "invented": 2})
