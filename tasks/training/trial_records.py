"""What came of small trials, read from the folder of each: its measured losses, and its line in `trials.jsonl`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from specs.files import read_lines, write_lines
from specs.parameters import TrainingConfiguration, leaves
from specs.trials import BASE, CHANGED, TrialEnd, TrialRecord
from tasks.training.job import Job
from tasks.training.logbook import PROBES
from tasks.training.trial_ends import end_of, reason_of, steps_of, times_of
from tasks.training.trials import Died, Measured, ends

Name = tuple[str, int]
"""Setting and seed of one trial."""


def measured(job: Job) -> Measured:
    """Measured loss before the first and after the last step of a trial that has its end; null where it diverged."""
    if (end := end_of(job.out)) == "died":
        return Died(reason_of(job.out))
    if end == "diverged":
        return None
    return ends({int(p["step"]): p["loss"] for p in read_lines(job.out / PROBES)}, _planned(job))


def record(jobs: Mapping[Name, Job], model: str, path: Path) -> None:
    """Write the trials of these jobs that have their end to `path`, in place of what stands there of them."""
    confirming = any(name == CHANGED for name, _ in jobs)
    purpose = "confirmation" if confirming else "trial"
    others = [one for one in read_records(path) if one.purpose != purpose]
    first = 1 + (len(others) if confirming else 0)
    found = []
    for number, ((name, seed), job) in enumerate(jobs.items(), first):
        end = end_of(job.out)
        if end is not None:
            base = jobs[BASE, seed].training
            found.append(_record(job, end, base, number=number, purpose=purpose, name=name, seed=seed, model=model))
    write_lines(path, sorted([*others, *found], key=lambda one: one.number))


def _record(job: Job, end: TrialEnd, base: TrainingConfiguration, **named: object) -> TrialRecord:
    losses = measured(job) if end == "ended" else None
    whole = losses if isinstance(losses, tuple) else None
    plain, own = leaves(base.model_dump(mode="json")), leaves(job.training.model_dump(mode="json"))
    started, seconds = times_of(job.out)
    return TrialRecord.model_validate(
        {
            **named,
            "changes": {path: value for path, value in own.items() if plain.get(path) != value},
            "steps": steps_of(job.out),
            "planned": _planned(job),
            "outcome": "diverged" if end == "ended" and whole is None else end,
            "why": reason_of(job.out),
            "loss_before": whole and whole[0],
            "loss_after": whole and whole[1],
            "started_at": started,
            "seconds": seconds,
        }
    )


def _planned(job: Job) -> int:
    return job.training.max_steps or 1


def read_records(path: Path) -> list[TrialRecord]:
    """The trainings in a `trials.jsonl`, in their order; none where there is no such file."""
    return [TrialRecord.model_validate(line) for line in read_lines(path)] if path.is_file() else []
