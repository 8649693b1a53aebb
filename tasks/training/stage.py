"""The `train` stage: the configuration that passed the stress test, on the batch plan that the stress test made."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specs.canonical import canonical_bytes, sha256_file
from specs.errors import GuardRefused, InputError, ResumeRefused, TrainingError
from specs.files import storage_errors, sync_folder, write_json
from specs.parameters import TrainingConfiguration, TrainParameters, fingerprint
from specs.stages import Progress, StageContext, StageResult
from tasks.data.batch_plan import PlanRow, read_plan
from tasks.data.objectives import taken
from tasks.memory.devices import device_of_rank
from tasks.parents import require_parent
from tasks.stress.environment import require_same
from tasks.training.changes import CONFIRMED, DIFFERENCES, read_rows, write_rows
from tasks.training.job import Job, WorkerResult
from tasks.training.judgement import GO_ON, choose_judged, judge_step
from tasks.training.launch import keep_results, run_training, training_notes


def run(context: StageContext, progress: Progress) -> StageResult:
    """Train to the last planned step. Started again after a stop or a crash, it goes on and ends with the same bytes.

    The worker's own files lie beside the checkpoints, which outlive an attempt that was cut off; they are copied
    into the artifacts at the end.
    """
    job = make_job(context)
    _same_as_stress_test(context, job)
    notes = take_over(context, job)
    if context.go_on:
        write_json(job.out / GO_ON, {"reason": context.go_on})
    write_rows(job.out / CONFIRMED, context.confirmed)
    if context.spec.rehearsal is not None:
        notes += _stop_half_way(context, job, progress)
    result = _train(job, context.logs / "worker.log", progress)
    if not result.finished:
        raise TrainingError(
            f"the training ended after {result.steps} of {result.planned} steps", "`gatewright resume` goes on"
        )
    keep_results(job.out, context.artifacts)
    return StageResult(notes=[*notes, *training_notes(context.artifacts, context.spec.language)])


def _train(job: Job, log: Path, progress: Progress) -> WorkerResult:
    """Run the worker. A resume that only a person's word is missing to says how that is given."""
    try:
        return run_training(job, log, progress)
    except ResumeRefused as refused:
        rows = read_rows(job.out / DIFFERENCES)
        if not rows or not all(row.may_be_confirmed for row in rows):
            raise
        way = "or `gatewright go-on --as WHO -m WHY` confirms the difference, then `gatewright resume`"
        raise ResumeRefused(refused.message, f"{refused.hint}; {way}") from refused


def _stop_half_way(context: StageContext, job: Job, progress: Progress) -> list[str]:
    """Of a rehearsal: train to the middle, save and end, so that the rest is a resume. Nothing once it went on."""
    if (job.out / "job.json").is_file() and (job.out / "job.json").read_bytes() == canonical_bytes(job):
        return []
    middle = max(1, read_plan(job.plan)[-1].step // 2)
    progress.say(f"rehearsal: saves and ends after step {middle}, then goes on")
    _train(job.model_copy(update={"stop_after_step": middle}), context.logs / "worker.log", progress)
    return [
        f"演练：第 {middle} 步后保存并结束，随后恢复"
        if context.spec.language == "zh"
        else f"rehearsal: saved and ended after step {middle}, then resumed"
    ]


def make_job(context: StageContext) -> Job:
    """The worker's job. Raises `InputError` when an input of the stage is not there."""
    training = TrainParameters.model_validate(context.parameters).training
    samples = _artifact(context, "data", "samples.parquet")
    plan = _artifact(context, "stress_test", "batch_plan.parquet")
    if context.base_model is None or context.base_model_sha256 is None:
        raise InputError("train needs a base model", "set base_model in project.yaml")
    parent = require_parent(context, training)
    record = context.spec.parent_record
    return Job(
        training=training,
        base_model=context.base_model,
        base_model_name=context.spec.base_model,
        base_model_sha256=context.base_model_sha256,
        samples=samples,
        samples_sha256=sha256_file(samples),
        parent=parent,
        parent_sha256=record.weights_sha256 if record else None,
        plan=plan,
        out=context.checkpoints_dir / "worker",
        checkpoints=context.checkpoints_dir,
        memory_limit_bytes=context.spec.launcher.memory_limit_bytes,
        **(_judged(context, training, samples, read_plan(plan)) if training.early_judgement != "off" else {}),
    )


def _judged(
    context: StageContext, training: TrainingConfiguration, samples: Path, rows: Sequence[PlanRow]
) -> dict[str, Any]:
    """When the early judgement is made, on which held-out samples of the trained objectives, and against which bound:
    that of `evaluate`."""
    import pyarrow.parquet as pq

    columns = ["sample_id", "kind", "prompt", "n_tokens"]
    found = pq.read_table(samples, columns=columns, filters=[("split", "=", "eval")]).to_pylist()
    held_out = [(row["sample_id"], row["n_tokens"]) for row in taken(found, training)]
    per_batch: Counter[tuple[int, int, int]] = Counter()
    for row in rows:
        per_batch[row.step, row.rank, row.micro_batch] += row.padded_tokens
    largest = max(per_batch.values())
    chosen, too_long = choose_judged(held_out, largest)
    criteria = [c for c in context.spec.criteria("evaluate") if c.metric == "eval_loss_change" and c.op in ("<", "<=")]
    return {
        "judge_after_step": judge_step(rows, training.judge_after),
        "judge_sample_ids": chosen,
        "judge_too_long": too_long,
        "judge_acts": context.spec.rehearsal is None,
        "judge_bound": min((c.bound for c in criteria), default=0.0),
    }


def take_over(context: StageContext, job: Job) -> list[str]:
    """Take the checkpoints of the newest earlier attempt of this run that was not finished, when its job was the same.

    An attempt fails when its worker dies, a disk is full or the early judgement asks; the next one goes on where it
    stood. The folder is moved as a whole, so that a crash leaves it here or there. Returns what is to be said.
    """
    here, zh = context.checkpoints_dir, context.spec.language == "zh"
    if any(here.iterdir() if here.is_dir() else ()):
        return []
    others = []
    for number in range(context.attempt - 1, 0, -1):
        earlier = here.with_name(f"{context.stage}-{number:03d}")
        if not _is_same_unfinished(earlier, job):
            others += [number] if _is_unfinished(earlier) else []
            continue
        with storage_errors(here):
            if here.is_dir():
                here.rmdir()
            os.rename(earlier, here)
            sync_folder(here.parent)
        return [
            f"接着第 {number} 次尝试的检查点继续训练" if zh else f"went on with the checkpoints of attempt {number}"
        ]
    return [
        f"从头训练：第 {number} 次尝试的检查点属于其他设置、计划、样本或模型，或其 job.json 无法读取"
        if zh
        else f"trained from the beginning: the checkpoints of attempt {number} are of other settings, plan, samples or "
        "model, or their job.json cannot be read"
        for number in others[:1]
    ]


def _is_unfinished(earlier: Path) -> bool:
    """Whether a folder holds checkpoints of a training that has not come to its end."""
    saved = any(path.is_dir() and path.name.isdecimal() for path in (earlier.iterdir() if earlier.is_dir() else ()))
    return saved and not (earlier / "worker" / "result.json").is_file()


def _is_same_unfinished(earlier: Path, job: Job) -> bool:
    """Whether a folder of checkpoints belongs to the same job, whatever its paths, and more is to be trained."""
    try:
        before = Job.model_validate_json((earlier / "worker" / "job.json").read_bytes())
        same_plan = sha256_file(before.plan) == sha256_file(job.plan)
    except (OSError, ValueError):
        return False
    if (earlier / "worker" / "result.json").is_file():
        return False
    paths = {"base_model", "parent", "samples", "plan", "out", "checkpoints"}
    return same_plan and before.model_dump(exclude=paths) == job.model_dump(exclude=paths)


def _artifact(context: StageContext, stage: str, name: str) -> Path:
    folder = context.inputs.get(stage)
    if folder is None or not (folder / "artifacts" / name).is_file():
        raise InputError(f"{context.stage} needs {name} of {stage}", f"run {stage} first")
    return folder / "artifacts" / name


def _same_as_stress_test(context: StageContext, job: Job) -> None:
    """Raise `GuardRefused` when the stress test vouched for another configuration, base model or set of samples."""
    settings = json.loads(_artifact(context, "stress_test", "settings.json").read_bytes())
    if settings["fingerprint"] != fingerprint(job.training, job.base_model_sha256, job.samples_sha256):
        raise GuardRefused(
            "this configuration is not the one that passed the stress test",
            "rework the stress test with it: train runs only what was measured",
        )
    measured = json.loads(_artifact(context, "stress_test", "device.json").read_bytes())
    device = device_of_rank(job.training.ranks, context.spec.launcher.memory_gb)
    require_same(measured, device, job.training)
