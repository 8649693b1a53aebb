"""The `stress_test` stage: the worst planned steps on the real device, measured, and set against the memory account.

It makes the batch plan of the whole run, which `train` then follows, and runs its worst steps with the real worker:
training, save, evaluation, and a resume from the save that must reach the same losses.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from specs.canonical import sha256_file
from specs.errors import InputError, WorkerError
from specs.files import storage_errors, write_json
from specs.parameters import StressTestParameters, TrainingConfiguration
from specs.stages import Progress, StageContext, StageResult
from tasks.data.batch_plan import PlanRow, plan_batches, write_plan
from tasks.memory.devices import Device, this_device
from tasks.memory.measurement import measurement
from tasks.memory.prediction import plan_account
from tasks.memory.worst import StressPlan, WorstStep, stress_plan, worst_steps
from tasks.pool import training_pool
from tasks.training.job import Job
from tasks.training.launch import keep_results, read_lines, run_training
from tasks.workers import WorkerDied

MOST_EVALUATED = 4
"""Held-out samples in the evaluation batch that is measured: the longest ones."""

EIGHT_BIT = {"adamw": "adamw_8bit", "adamw_fused": "adamw_8bit"}


def run(context: StageContext, progress: Progress) -> StageResult:
    """Plan, predict, run the worst steps, resume, and write what was measured. Raises `WorkerError` out of memory."""
    parameters = StressTestParameters.model_validate(context.parameters)
    training = parameters.training
    if context.base_model is None or context.base_model_sha256 is None:
        raise InputError("stress_test needs a base model", "set base_model in project.yaml")
    samples = context.inputs["data"] / "artifacts" / "samples.parquet"
    pool, held_out = training_pool(samples, training, context.spec.rehearsal), _held_out(samples)
    rows = plan_batches(pool.samples, training, plain=pool.plain)
    write_plan(rows, context.artifacts / "batch_plan.parquet")
    device = this_device("auto")
    account, coefficients = plan_account(context.base_model, training, device, rows, progress)
    worst = worst_steps(rows)
    plan = stress_plan(rows, worst, parameters.growth_steps)
    write_plan(plan.rows, context.artifacts / "stress_plan.parquet")
    job = _job(context, training, plan, samples, held_out)
    free_bytes = device.free_bytes
    _run(job, context.logs / "worker.log", progress, worst, training)
    resumed = _resume(context, job, plan, progress, worst)
    keep_results(job.out, context.artifacts)
    keep_results(resumed, context.artifacts / "resumed")
    for folder in ("adapter", "model", "resumed/adapter", "resumed/model"):
        shutil.rmtree(context.artifacts / folder, ignore_errors=True)
    found = measurement(
        straight=_logs(job.out), resumed=_logs(resumed), worst=worst, planned=plan.planned, device=device
    ) | {"free_bytes_before": free_bytes}
    write_json(context.artifacts / "measurement.json", found)
    measured_framework = account.with_framework(found["baseline_bytes"]) if device.kind == "cpu" else account
    document = measured_framework.on(device).model_dump(mode="json")
    predicted = measured_framework.process_bytes if device.kind == "cpu" else account.peak_allocated_bytes
    write_json(
        context.artifacts / "account.json",
        document | {"predicted_peak_bytes": predicted, "coefficients": coefficients.model_dump(mode="json")},
    )
    _write_device(context, device, training, job.out)
    mixed = pool.notes(rows, training, context.spec.language)
    return StageResult(notes=[*_notes(context, rows, worst, device), *mixed])


def _held_out(path: Path) -> list[tuple[str, int]]:
    """(sample_id, n_tokens) of the held-out samples, longest first."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["sample_id", "split", "n_tokens"]).to_pylist()
    held_out = [(r["sample_id"], int(r["n_tokens"])) for r in table if r["split"] == "eval"]
    return sorted(held_out, key=lambda s: (-s[1], s[0]))


def _job(
    context: StageContext,
    training: TrainingConfiguration,
    plan: StressPlan,
    samples: Path,
    held_out: list[tuple[str, int]],
) -> Job:
    assert context.base_model is not None
    assert context.base_model_sha256 is not None
    size = min(training.micro_batch, MOST_EVALUATED)
    fits = [sample_id for sample_id, n_tokens in held_out if n_tokens <= training.max_length]
    folder = context.checkpoints_dir / "straight"
    return Job(
        training=training,
        base_model=context.base_model,
        base_model_name=context.spec.base_model,
        base_model_sha256=context.base_model_sha256,
        samples=samples,
        samples_sha256=sha256_file(samples),
        plan=context.artifacts / "stress_plan.parquet",
        whole_plan=False,
        out=folder / "worker",
        checkpoints=folder / "steps",
        evaluation_sample_ids=sorted(fits[:size]),
        evaluation_batch=size,
        save_at=[plan.save_at],
    )


def _run(job: Job, log: Path, progress: Progress, worst: list[WorstStep], training: TrainingConfiguration) -> None:
    """Run the worker; out of memory is an outcome, said with what was run and what to propose next."""
    try:
        run_training(job, log, progress)
    except WorkerDied as died:
        if died.signal_number is None:
            raise
        raise _out_of_memory(died, worst, training) from died
    except WorkerError as error:
        if not error.message.startswith("out of memory"):
            raise
        raise _out_of_memory(error, worst, training) from error


def _out_of_memory(error: WorkerError, worst: list[WorstStep], training: TrainingConfiguration) -> WorkerError:
    steps = ", ".join(f"step {w.step} ({w.padded_tokens} padded tokens, longest {w.longest})" for w in worst)
    return WorkerError(
        f"the stress test ended while it ran the worst planned batches, {steps}, with micro batch "
        f"{training.micro_batch} x {training.gradient_accumulation}: {error.message}",
        "rework with less memory, for example " + "; ".join(lower_settings(training)) + f". {error.hint}",
    )


def lower_settings(training: TrainingConfiguration) -> list[str]:
    """Settings that need less memory, the cheapest first; the effective batch is kept. Pure."""
    found = []
    if training.micro_batch > 1:
        half = training.micro_batch // 2
        steps = -(-training.effective_batch // half)
        found.append(f"--set micro_batch={half} --set gradient_accumulation={steps}")
    if not training.activation_checkpointing:
        found.append("--set activation_checkpointing=true")
    if training.optimizer in EIGHT_BIT and training.method == "full":
        found.append(f"--set optimizer={EIGHT_BIT[training.optimizer]}")
    if training.weights == "fp32":
        found.append("--set weights=bf16 --set compute=bf16")
    if training.method == "full":
        found.append("method: lora in project.yaml")
    return [*found, "shorter samples (the data stage), or a device with more memory"]


def _resume(context: StageContext, job: Job, plan: StressPlan, progress: Progress, worst: list[WorstStep]) -> Path:
    """Train the steps after the save once more, in a new worker that begins with the save. Returns its folder.

    Where only one checkpoint is kept, the save is gone by now: it is made again from the beginning.
    """
    folder = context.checkpoints_dir / "resumed"
    again = job.model_copy(update={"out": folder / "worker", "checkpoints": folder / "steps"})
    log = context.logs / "resumed.log"
    if (again.out / "result.json").is_file():
        return again.out
    source = job.checkpoints / f"{plan.save_at:08d}"
    with storage_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
        if source.is_dir():
            shutil.copytree(source, again.checkpoints / source.name)
            again.out.mkdir(parents=True)
            for path in sorted(job.out.glob("*.jsonl")):
                shutil.copyfile(path, again.out / path.name)
    progress.say(f"resume from the save of step {plan.save_at}")
    if not source.is_dir():
        _run(again.model_copy(update={"stop_after_step": plan.save_at}), log, progress, worst, job.training)
    _run(again, log, progress, worst, job.training)
    return again.out


def _logs(out: Path) -> dict[str, list[dict[str, Any]]]:
    return {name: read_lines(out / f"{name}.jsonl") for name in ("metrics", "memory", "sessions")}


def _write_device(context: StageContext, device: Device, training: TrainingConfiguration, out: Path) -> None:
    """Device, driver, allocator settings and threads: what the measurement is valid for."""
    from tasks.workers import worker_environment

    environment = worker_environment(training.threads)
    names = (
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "MALLOC_MMAP_THRESHOLD_",
        "GLIBC_TUNABLES",
        "OMP_NUM_THREADS",
    )
    settings = json.loads((out / "settings.json").read_bytes())
    write_json(
        context.artifacts / "device.json",
        {
            **device.model_dump(mode="json", exclude={"free_bytes"}),
            "worker": settings["device"],
            "versions": settings["versions"],
            "allocator": {name: environment[name] for name in names if name in environment},
            "threads": training.threads,
        },
    )


def _notes(context: StageContext, rows: list[PlanRow], worst: list[WorstStep], device: Device) -> list[str]:
    zh = context.spec.language == "zh"
    steps, run = rows[-1].step, ", ".join(str(w.step) for w in worst)
    notes = [
        f"计划共 {steps} 个优化步；已实测最坏的第 {run} 步"
        if zh
        else f"the plan has {steps} optimizer steps; measured were its worst, {run}"
    ]
    if context.spec.hardware != "auto":
        notes.append(
            f"spec 指定了 {context.spec.hardware.gpu}，但测量是在本机的 {device.name} 上做的"
            if zh
            else f"the spec names {context.spec.hardware.gpu}; what was measured is the {device.name} of this machine"
        )
    return notes
