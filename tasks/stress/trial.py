"""One trial of a configuration with the real worker: the worst planned steps, a step of every bucket, save, resume."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specs.canonical import sha256_file
from specs.files import read_lines, storage_errors
from specs.parameters import TrainingConfiguration
from specs.stages import Progress, StageContext
from tasks.data.batch_plan import PlanRow, plan_batches, write_plan
from tasks.memory.devices import Device
from tasks.memory.worst import StressPlan, WorstStep, stress_plan, worst_steps
from tasks.pool import Pool
from tasks.stress.buckets import steps_to_time
from tasks.training.job import Job
from tasks.training.launch import run_training

MOST_EVALUATED = 4
"""Held-out samples in the evaluation batch that is measured: the longest ones."""


@dataclass(frozen=True)
class Bench:
    """What all trials of an attempt share. Samples are (sample_id, n_tokens); those held out the longest first.

    `device` is that of one rank: ranks on a CPU share its memory.
    """

    context: StageContext
    progress: Progress
    device: Device
    samples: Path
    pool: Pool
    held_out: Sequence[tuple[str, int]]
    buckets: Mapping[str, int]
    growth_steps: int


@dataclass(frozen=True)
class Trial:
    """One configuration to run. `rows` is the plan of a whole training with it, `plan` what is run of that."""

    training: TrainingConfiguration
    rows: list[PlanRow]
    worst: list[WorstStep]
    plan: StressPlan
    folder: Path
    short: bool
    """A probe: the worst step alone, no evaluation, no resume."""

    @property
    def straight(self) -> Path:
        """What the worker left that ran everything in one go."""
        return self.folder / "straight" / "worker"

    @property
    def resumed(self) -> Path:
        """What the worker left that began with the save of the other."""
        return self.folder / "resumed" / "worker"

    def logs(self, out: Path) -> dict[str, list[dict[str, Any]]]:
        """The lines of a worker, as far as it came."""
        return {name: _read(out, name) for name in ("metrics", "memory", "sessions")}

    def forget_steps(self) -> None:
        """Checkpoints are needed no more; the logs stay."""
        for name in ("straight", "resumed"):
            shutil.rmtree(self.folder / name / "steps", ignore_errors=True)
            for weights in ("adapter", "model"):
                shutil.rmtree(self.folder / name / "worker" / weights, ignore_errors=True)


def prepare(bench: Bench, folder: Path, training: TrainingConfiguration, longest: int | None = None) -> Trial:
    """The plan of a trial; with `longest`, a probe on samples of at most so many tokens.

    Raises `InputError` where no batch plan exists.
    """
    if longest is not None:
        changed: dict[str, Any] = {"max_length": min(longest, training.max_length), "packing": False}
        changed["plain_text_share"] = None  # whatever is short enough
        training = training.model_copy(update=changed)
    train = [s for s in bench.pool.samples if longest is None or s[1] <= longest]
    rows = plan_batches(train, training, plain=bench.pool.plain if longest is None else frozenset())
    worst = worst_steps(rows)
    if longest is None:
        between = steps_to_time(rows, bench.buckets, {w.step for w in worst})
        return Trial(training, rows, worst, stress_plan(rows, worst, bench.growth_steps, between), folder, False)
    return Trial(training, rows, worst, stress_plan(rows, worst[:1], 1), folder, True)


def run(trial: Trial, bench: Bench) -> None:
    """Run the steps, the evaluation, the save and the resume. What ran to its end before is not run again.

    Raises `OutOfMemory`, and whatever else ends a worker.
    """
    trial.folder.mkdir(parents=True, exist_ok=True)
    write_plan(trial.plan.rows, trial.folder / "stress_plan.parquet")
    job, log = _job(trial, bench), bench.context.logs / f"worker-{trial.folder.name}.log"
    run_training(job, log, bench.progress)
    if not trial.short:
        _resume(trial, job, bench)


def _job(trial: Trial, bench: Bench) -> Job:
    context, training = bench.context, trial.training
    assert context.base_model is not None
    assert context.base_model_sha256 is not None
    size = min(training.micro_batch, MOST_EVALUATED)
    fits = [sample_id for sample_id, n_tokens in bench.held_out if n_tokens <= training.max_length]
    folder = trial.folder / "straight"
    return Job(
        training=training,
        base_model=context.base_model,
        base_model_name=context.spec.base_model,
        base_model_sha256=context.base_model_sha256,
        samples=bench.samples,
        samples_sha256=sha256_file(bench.samples),
        plan=trial.folder / "stress_plan.parquet",
        whole_plan=False,
        out=folder / "worker",
        checkpoints=folder / "steps",
        evaluation_sample_ids=[] if trial.short else sorted(fits[:size]),
        evaluation_batch=size,
        save_at=[trial.plan.save_at],
        memory_limit_bytes=context.spec.launcher.memory_limit_bytes or bench.device.usable_bytes,
    )


def _resume(trial: Trial, job: Job, bench: Bench) -> None:
    """Train the steps after the save once more, in a new worker that begins with the save.

    Where only one checkpoint is kept, the save is gone by now: it is made again from the beginning.
    """
    folder, save_at = trial.folder / "resumed", trial.plan.save_at
    again = job.model_copy(update={"out": folder / "worker", "checkpoints": folder / "steps"})
    log = bench.context.logs / f"resumed-{trial.folder.name}.log"
    if (again.out / "result.json").is_file():
        return
    source = job.checkpoints / f"{save_at:08d}"
    with storage_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
        if source.is_dir():
            shutil.copytree(source, again.checkpoints / source.name)
            again.out.mkdir(parents=True)
            for path in sorted(job.out.glob("*.jsonl")):
                shutil.copyfile(path, again.out / path.name)
    bench.progress.say(f"resume from the save of step {save_at}")
    if not source.is_dir():
        run_training(again.model_copy(update={"stop_after_step": save_at}), log, bench.progress)
    run_training(again, log, bench.progress)


def process_peak(trial: Trial, device: Device) -> int | None:
    """The most that the workers held: reserved bytes on a GPU, the resident set on a CPU; null when nothing ran."""
    names = ("reserved_bytes",) if device.kind == "cuda" else ("memory_bytes", "peak_bytes")
    lines = [
        line for out in (trial.straight, trial.resumed) for log in ("metrics", "memory") for line in _read(out, log)
    ]
    found = [int(line[name]) for line in lines for name in names if line.get(name) is not None]
    return max(found, default=None)


def _read(out: Path, name: str) -> list[dict[str, Any]]:
    path = out / f"{name}.jsonl"
    return read_lines(path) if path.is_file() else []
