"""A trial: a few real steps of a training in one file, run on any machine, so that machines are compared by doing it.

`trial.json` holds the training configuration, the samples of its heaviest and of its bucket steps, and which base
model they are for; its digest is over all of it. What a machine measured is a second file that names this digest. The
base model is not in it: it is read where it is and must be the same bytes.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from specs.base import Language, Sha256, Strict
from specs.canonical import canonical_bytes, digest, sha256_file
from specs.errors import InputError, VerificationFailed
from specs.files import read_lines, write_bytes
from specs.parameters import TrainingConfiguration
from specs.stages import Progress
from tasks.data.batch_plan import PlanRow, plan_batches, write_plan
from tasks.memory.devices import Device, this_device
from tasks.memory.worst import stress_plan, worst_steps
from tasks.pool import training_pool
from tasks.stress.buckets import steps_to_time
from tasks.stress.environment import environment_of
from tasks.training.job import Job
from tasks.training.launch import run_training
from tasks.training.models import check_possible

REPEATS = 2
"""Runs of the heaviest step: the first warms up, the later ones are what is compared."""
MOST_BYTES = 64 * 2**20
"""Of a trial file that is read; more is no trial."""


class Trial(Strict):
    """`trial.json`. `steps` are run in order; `samples` are rows of samples.parquet."""

    kind: Literal["gatewright-trial"] = "gatewright-trial"
    version: Literal[1] = 1
    project: str
    base_model: str
    base_model_sha256: Sha256
    training: TrainingConfiguration
    samples: list[dict[str, Any]] = Field(min_length=1)
    plan: list[dict[str, Any]] = Field(min_length=1)
    language: Language | None = Field(None, description="of the project: what commands say of this file")
    sha256: Sha256 | None = Field(None, description="of all of the above")


class StepMeasured(Strict):
    """One optimizer step. `loss` is null where it was not finite."""

    step: int
    padded_tokens: int
    seconds: float
    loss: float | None
    peak_bytes: int | None


class TrialResult(Strict):
    """What one machine measured."""

    kind: Literal["gatewright-trial-result"] = "gatewright-trial-result"
    version: Literal[1] = 1
    name: str = Field(description="of the machine, as the person calls it")
    trial_sha256: Sha256
    device: str
    count: int
    usable_bytes: int
    environment: dict[str, str]
    steps: list[StepMeasured] = Field(min_length=1)
    language: Language | None = Field(None, description="that of the trial")
    sha256: Sha256 | None = Field(None, description="of all of the above")

    @property
    def warm(self) -> list[StepMeasured]:
        """Without the first step, where there are others."""
        return self.steps[1:] or self.steps

    @property
    def tokens_per_second(self) -> float:
        """Padded tokens over the time of the warm steps."""
        return sum(s.padded_tokens for s in self.warm) / sum(s.seconds for s in self.warm)

    @property
    def seconds_per_step(self) -> float:
        """The middle one of the warm steps."""
        return statistics.median(s.seconds for s in self.warm)

    @property
    def peak_bytes(self) -> int | None:
        """The most that any step took; null where the device does not say."""
        return max((s.peak_bytes for s in self.steps if s.peak_bytes is not None), default=None)


def sealed(document: Trial | TrialResult) -> bytes:
    """The bytes of a document with its own digest."""
    return canonical_bytes(document.model_copy(update={"sha256": _digest(document)}))


def _digest(document: Trial | TrialResult) -> str:
    """Over everything but itself. A language counts where it is said, so that older files keep their digest."""
    unsaid = {"sha256"} | ({"language"} if document.language is None else set())
    return digest(document.model_dump(mode="json", exclude=unsaid))


def read_trial(path: Path) -> Trial:
    """A trial file. Raises `InputError` for what is none, `VerificationFailed` for one that was changed."""
    return _read(path, Trial, "a trial")


def read_result(path: Path) -> TrialResult:
    """A result file; raises the same."""
    return _read(path, TrialResult, "a trial's result")


D = TypeVar("D", Trial, TrialResult)


def _read(path: Path, kind: type[D], what: str) -> D:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path} is larger than {what} can be", "name the file that `gatewright trial` wrote")
        found = kind.model_validate(json.loads(path.read_bytes()))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "name a file of `gatewright trial`") from None
    except (ValueError, ValidationError, RecursionError):
        raise InputError(f"{path} is not {what}", "make one: gatewright trial make, gatewright trial run") from None
    if found.sha256 != _digest(found):
        raise VerificationFailed(f"{path} was changed: its digest is not that of its content", "make it again")
    return found


def made(
    project: str,
    base_model: str,
    base_model_sha256: str,
    training: TrainingConfiguration,
    samples: Path,
    language: Language | None = None,
) -> Trial:
    """The heaviest step, a step of every bucket, and the other worst ones, of one epoch of a run's samples."""
    import pyarrow.parquet as pq

    pool = training_pool(samples, training)
    rows = plan_batches(pool.samples, training, plain=pool.plain)
    buckets = {}
    if "bucket" in pq.read_schema(samples).names:
        table = pq.read_table(samples, columns=["sample_id", "bucket"]).to_pylist()
        buckets = {r["sample_id"]: int(r["bucket"]) for r in table if r["bucket"] is not None}
    worst = worst_steps(rows)
    plan = stress_plan(rows, worst, REPEATS, steps_to_time(rows, buckets, {w.step for w in worst}))
    used = {row.sample_id for row in plan.rows}
    kept = [r for r in pq.read_table(samples).to_pylist() if r["sample_id"] in used]
    return Trial(
        project=project,
        base_model=base_model,
        base_model_sha256=base_model_sha256,
        training=training,
        samples=json.loads(json.dumps(kept, default=str)),
        plan=[asdict(row) for row in plan.rows],
        language=language,
    )


def run(trial: Trial, base_model: Path, name: str, progress: Progress, keep: Path | None = None) -> TrialResult:
    """Train the steps on this machine and measure them. Nothing is kept but the result, and the log where asked.

    Raises `InputError` or `ModelError` where this machine cannot train the configuration, `OutOfMemory` where it has
    too little memory.
    """
    device = this_device()
    check_possible(trial.training, device.kind)
    with tempfile.TemporaryDirectory(prefix="gatewright-trial-") as place:
        folder = Path(place)
        job = _job(trial, base_model, folder, device)
        run_training(job, (keep or folder) / "trial-worker.log", progress)
        lines = read_lines(job.out / "metrics.jsonl")
    return TrialResult(
        name=name,
        trial_sha256=_digest(trial),
        device=device.name,
        count=device.count,
        usable_bytes=device.usable_bytes,
        environment=environment_of(device, trial.training),
        steps=[_measured(line) for line in lines],
        language=trial.language,
    )


def _job(trial: Trial, base_model: Path, folder: Path, device: Device) -> Job:
    import pyarrow as pa
    import pyarrow.parquet as pq

    samples, plan = folder / "samples.parquet", folder / "plan.parquet"
    pq.write_table(pa.Table.from_pylist(trial.samples), samples)
    try:
        write_plan([PlanRow(**row) for row in trial.plan], plan)
    except (TypeError, pa.ArrowException) as error:
        raise InputError(f"the plan of the trial is not one: {error}", "make the trial again") from None
    return Job(
        training=trial.training,
        base_model=base_model,
        base_model_name=trial.base_model,
        base_model_sha256=trial.base_model_sha256,
        samples=samples,
        samples_sha256=sha256_file(samples),
        plan=plan,
        whole_plan=False,
        out=folder / "worker",
        checkpoints=folder / "steps",
        memory_limit_bytes=device.per_rank(trial.training.ranks).usable_bytes,
    )


def _measured(line: dict[str, Any]) -> StepMeasured:
    loss, peak = line.get("loss"), line.get("reserved_bytes") or line.get("memory_bytes")
    return StepMeasured(
        step=int(line["step"]),
        padded_tokens=int(line["padded_tokens"]),
        seconds=float(line["seconds"]),
        loss=float(loss) if loss is not None and math.isfinite(loss) else None,
        peak_bytes=int(peak) if peak is not None else None,
    )


class Compared(Strict):
    """One machine beside the quickest and beside the first named."""

    name: str
    device: str
    seconds_per_step: float
    tokens_per_second: float
    times_slower: float = Field(description="than the quickest")
    peak_bytes: int | None
    share: float | None = Field(description="of usable memory")
    loss_difference: float | None = Field(description="largest difference of a step's loss to the first named machine")
    different: dict[str, str] = Field(description="software that is not that of the first named")


def compared(results: Sequence[TrialResult]) -> list[Compared]:
    """The machines, the quickest first. Raises `InputError` where they did not run the same trial."""
    if len({r.trial_sha256 for r in results}) > 1:
        names = ", ".join(f"{r.name}: {r.trial_sha256[:12]}" for r in results)
        raise InputError(f"these are results of different trials ({names})", "run the same trial.json everywhere")
    quickest = max(r.tokens_per_second for r in results)
    rows = [_compared(r, results[0], quickest) for r in results]
    return sorted(rows, key=lambda c: (-c.tokens_per_second, c.name))


def _compared(result: TrialResult, first: TrialResult, quickest: float) -> Compared:
    peak, losses = result.peak_bytes, []
    for mine, other in zip(result.steps, first.steps, strict=False):
        if mine.loss is not None and other.loss is not None:
            losses.append(abs(mine.loss - other.loss))
    software = {
        name.removeprefix("software."): version
        for name, version in result.environment.items()
        if name.startswith("software.") and first.environment.get(name) != version
    }
    return Compared(
        name=result.name,
        device=result.device,
        seconds_per_step=result.seconds_per_step,
        tokens_per_second=result.tokens_per_second,
        times_slower=quickest / result.tokens_per_second,
        peak_bytes=peak,
        share=peak / result.usable_bytes if peak is not None and result.usable_bytes else None,
        loss_difference=max(losses, default=None),
        different=software,
    )


def write(document: Trial | TrialResult, path: Path) -> None:
    """Atomically, sealed."""
    write_bytes(path, sealed(document))
