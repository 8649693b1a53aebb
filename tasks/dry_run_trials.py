"""The small trials of a dry run: trainings of a few steps that differ in one setting, and their confirmation.

Every setting is tried with the same seeds; a seed orders the samples, starts the adapter and draws its dropout, so that
trials of one seed are fed the same batches (a shorter length leaves samples out: there only the seed is the same). What
they did to the loss on held-out samples (on training samples, where no held-out one fits the length) is written to
`trials.json`, each training to `trials.jsonl`, the logs that it rests on below `trials/`.

A worker that is killed or runs out of memory ends the trial that it was at, and no other: that is what came of this
setting. Its other seeds are left out, and with a base trial everything that would be compared with it. One that dies
between two trials is started again; when it dies there once more, the trial that was next has ended with it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specs.base import Language, Sha256
from specs.canonical import canonical_bytes
from specs.errors import GatewrightError, OutOfMemory, Stopped
from specs.files import storage_errors, write_bytes, write_json, write_lines
from specs.parameters import TrainingConfiguration
from specs.stages import Progress
from specs.trials import (
    BASE,
    CHANGED,
    Cause,
    Confirmation,
    MeasuredOn,
    Outcome,
    TrialParameters,
    TrialsReport,
)
from tasks.data.batch_plan import plan_batches, write_plan
from tasks.pool import Pool
from tasks.training.job import Job
from tasks.training.logbook import MICRO_BATCHES, PROBES
from tasks.training.trial_ends import (
    DIED,
    DIVERGED,
    LEFT_OUT,
    die,
    end_of,
    leave_out,
    was_cut_off,
)
from tasks.training.trial_records import Name, measured, read_records, record
from tasks.training.trial_words import setting, why
from tasks.training.trial_worker import LEFT_OVERS, Trials
from tasks.training.trials import (
    Measured,
    base_fall,
    confirmed,
    level_of,
    name_of,
    outcome,
    seeds_of,
    short,
    variants,
    with_changes,
)
from tasks.worker_ends import WorkerDied
from tasks.workers import run_worker

WORKER = "tasks.training.trial_worker"

DOCUMENT, RECORDS = "trials.json", "trials.jsonl"

MEASURED = 32
"""Samples that the loss of a trial is measured on, spread over the lengths."""

POINTS = 4
"""Losses of these samples on the way of a trial, for its curve."""

KEPT = ("metrics.jsonl", MICRO_BATCHES, PROBES, "probe.json", "settings.json", DIVERGED, DIED, LEFT_OUT)


@dataclass(frozen=True)
class Material:
    """What trials are made with: a model, the samples that fit it, and what every job of them has in common."""

    folder: Path
    sha256: Sha256
    name: str
    pool: Pool
    measured: list[str]
    measured_on: MeasuredOn
    samples: Path
    samples_sha256: Sha256
    memory_limit_bytes: int | None = None


@dataclass(frozen=True)
class Place:
    """Where trials work (it outlives an attempt that is cut off), where their logs are kept, and the worker's own."""

    work: Path
    artifacts: Path
    log: Path


def make_trials(
    training: TrainingConfiguration,
    parameters: TrialParameters,
    small: Material,
    target: Material | None,
    place: Place,
    progress: Progress,
) -> TrialsReport:
    """Run the trials on the model of the dry run, and confirm on `target` what would change a proposal.

    Where nothing can be tried, no base trial is made either: there is nothing to compare with it.

    `target` is null where the dry run's model is the base model itself: its trends need no confirmation.
    """
    base = short(training, parameters.steps)
    tried = variants(base, parameters, [n for _, n in small.pool.samples])
    seeds = seeds_of(training, parameters.repeats)
    possible = [v for v in tried if not v.cannot]
    settings = {v.name: v.training for v in possible}
    where = Place(place.work / "small", place.artifacts, place.log)
    losses = _run(settings, seeds, small, where, progress) if len(possible) > 1 else {BASE: {}}
    level = level_of(len(possible) - 1)
    report = TrialsReport(
        model=small.name,
        steps=parameters.steps,
        seeds=seeds,
        samples=len(small.measured),
        measured_on=small.measured_on,
        level=level,
        base_fall=base_fall(losses[BASE]),
        outcomes=[outcome(v, losses[BASE], losses.get(v.name, {}), level) for v in tried[1:]],
    )
    if report.proposed:
        confirmation = _confirm(training, parameters, report.proposed, target, place, progress)
        report = report.model_copy(update={"confirmation": confirmation})
    write_json(place.artifacts / DOCUMENT, report)
    write_lines(place.artifacts / RECORDS, read_records(place.work / RECORDS))
    return report


def _confirm(
    training: TrainingConfiguration,
    parameters: TrialParameters,
    proposed: Sequence[Outcome],
    target: Material | None,
    place: Place,
    progress: Progress,
) -> Confirmation:
    """All changes together against none, on the base model. That it could not be run is said, and stops nothing."""
    names = [o.name for o in proposed]
    if target is None:
        return Confirmation(status="same model", changes=names)
    if not parameters.confirm_steps:
        return Confirmation(status="not run", changes=names, cause=Cause(key="no_confirm_steps"))
    base, changed = with_changes(short(training, parameters.confirm_steps), proposed, parameters.target_lr)
    progress.say(f"confirming {', '.join(names)} on the base model: {parameters.confirm_steps} steps, with and without")
    seeds = seeds_of(training, parameters.repeats)
    where = Place(place.work / "confirm", place.artifacts / "confirm", place.log)
    try:
        losses = _run({BASE: base, CHANGED: changed}, seeds, target, where, progress)
    except Stopped:
        raise
    except GatewrightError as error:
        cause = Cause(key="failed", values={"message": error.message.splitlines()[0]})
        return Confirmation(status="not run", changes=names, cause=cause)
    found = confirmed(proposed, losses[BASE], losses[CHANGED])
    return found.model_copy(update={"measured_on": target.measured_on})


def _run(
    settings: Mapping[str, TrainingConfiguration],
    seeds: Sequence[int],
    material: Material,
    place: Place,
    progress: Progress,
) -> dict[str, dict[int, Measured]]:
    """What came of each setting with each seed; those that ended before are not run again."""
    jobs: dict[Name, Job] = {}
    for seed in seeds:  # by seed, so that what is there after a stop are whole pairs
        for name, training in settings.items():
            jobs[name, seed] = _job(name, training.model_copy(update={"seed": seed}), material, place)
    file, data = place.work / "jobs.json", canonical_bytes(Trials(jobs=list(jobs.values())))
    if not file.is_file() or file.read_bytes() != data:
        with storage_errors(place.work):  # of other jobs: nothing of them is an answer to these
            for job in jobs.values():
                shutil.rmtree(job.out, ignore_errors=True)
        write_bytes(file, data)
    try:
        _train_all(jobs, file, place, progress)
    finally:
        record(jobs, material.name, place.work.parent / RECORDS)
    found: dict[str, dict[int, Measured]] = {name: {} for name in settings}
    for (name, seed), job in jobs.items():
        _keep(job.out, place.artifacts / "trials" / name_of(name, seed))
        if end_of(job.out) != "left_out":
            found[name][seed] = measured(job)
    return found


def _train_all(jobs: Mapping[Name, Job], file: Path, place: Place, progress: Progress) -> None:
    """Start the worker until every trial has its end. It dies at most once in each, and once before each.

    Raises what the worker raises, but for its death.
    """
    first = next(iter(jobs.values())).training
    waited_for: Name | None = None  # the trial that was next when the worker died before it had begun with one
    while (due := _due(jobs)) is not None:
        progress.say(f"{len(jobs)} small trials of {first.max_steps} steps")
        for job in jobs.values():
            if was_cut_off(job.out):  # with the whole stage: it is none that the worker of this start dies of
                shutil.rmtree(job.out)
        try:
            run_worker(WORKER, file, place.log, progress, threads=first.threads, allocator=first.allocator)
        except (WorkerDied, OutOfMemory) as error:
            reason = error.message.splitlines()[0]
            dead, due = next((n for n, job in jobs.items() if was_cut_off(job.out)), None), _due(jobs)
            if dead is None and due != waited_for:
                waited_for = due
                progress.say(f"the worker died between two trials and is started again: {reason}")
            elif (ended_with_it := dead or due) is not None:
                _give_up(jobs, ended_with_it, reason, progress)
        else:
            break


def _due(jobs: Mapping[Name, Job]) -> Name | None:
    """The next trial without an end; null where all have theirs."""
    return next((name for name, job in jobs.items() if end_of(job.out) is None), None)


def _give_up(jobs: Mapping[Name, Job], dead: Name, reason: str, progress: Progress) -> None:
    """The worker died in or before a trial: that is its end, and those that would stand beside it are left out."""
    die(jobs[dead].out, reason)
    for folder in (jobs[dead].checkpoints, *(jobs[dead].out / name for name in LEFT_OVERS)):
        shutil.rmtree(folder, ignore_errors=True)
    progress.say(f"{name_of(*dead)} died: {reason}")
    for name, job in jobs.items():
        if end_of(job.out) is None and dead[0] in (name[0], BASE):
            leave_out(job.out, f"{name_of(*dead)} died: {reason}")


def _job(name: str, training: TrainingConfiguration, material: Material, place: Place) -> Job:
    """The job of one trial, with its plan. The setting `length` leaves out what is longer than its limit."""
    pool = material.pool.within(training.max_length)
    fitted = pool.for_steps(training, training.max_steps or 1)
    folder = place.work / name_of(name, training.seed)
    plan = folder / "batch_plan.parquet"
    write_plan(plan_batches(pool.samples, fitted, plain=pool.plain), plan)
    return Job(
        training=fitted,
        base_model=material.folder,
        base_model_name=material.name,
        base_model_sha256=material.sha256,
        samples=material.samples,
        samples_sha256=material.samples_sha256,
        plan=plan,
        out=folder / "worker",
        checkpoints=folder / "steps",
        memory_limit_bytes=material.memory_limit_bytes,
        probe_sample_ids=material.measured,
        probe_every=max(1, -(-(training.max_steps or 1) // POINTS)),
        evaluation_batch=max(1, training.micro_batch // 2),
        fed_samples=0,
    )


def _keep(out: Path, folder: Path) -> None:
    """Copy the logs of a trial into the artifacts, in place of what an earlier start had copied."""
    with storage_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in KEPT:
            if (out / name).is_file():
                shutil.copyfile(out / name, folder / name)


def notes(report: TrialsReport, language: Language) -> list[str]:
    """What was tried and how it came out, in words."""
    zh, found = language == "zh", []
    told = [o for o in report.outcomes if o.trend in ("lower", "higher", "diverged")]
    without = [o for o in report.outcomes if o.trend in ("not tried", "died")]
    tried = sum(o.trend != "not tried" for o in report.outcomes)
    found.append(
        f"小规模试验：{tried} 种设置 × {len(report.seeds)} 个种子 × {report.steps} 步；{len(told)} 种与噪声可区分"
        if zh
        else f"small trials: {tried} settings with {len(report.seeds)} seeds over "
        f"{report.steps} steps; {len(told)} stand out of the noise"
    )
    if report.measured_on == "training" and tried:
        found.append(
            "没有留出样本符合试运行的长度：小规模试验的损失在训练样本上测量"
            if zh
            else "no held-out sample fits the dry run's length: the small trials were measured on training samples"
        )
    for o in without:
        name, reason = setting(language, o), why(language, o)
        found.append(f"试验「{name}」没有结果：{reason}" if zh else f"trial of {name} has no result: {reason}")
    return found
