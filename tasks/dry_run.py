"""The `dry_run` stage: a short training of a small model through the same data, template, plan and worker.

It also proves that a killed training goes on as if nothing had happened: from a copy of one of its checkpoints a second
worker trains on, saves, kills itself, is started again, and must end with the same losses and the same adapter.
"""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from specs.canonical import sha256_file
from specs.errors import InputError, TrainingError, WorkerError
from specs.files import storage_errors
from specs.parameters import DryRunParameters, TrainingConfiguration
from specs.stages import Progress, StageContext, StageResult
from specs.trials import MeasuredOn
from tasks.data.batch_plan import PlanRow, plan_batches, write_plan
from tasks.data.objectives import taken
from tasks.dry_run_trials import MEASURED, Material, Place, make_trials, notes
from tasks.pool import Pool, pool_of
from tasks.positions import require_within
from tasks.training.job import Job
from tasks.training.launch import keep_results, run_training
from tasks.turns import columns_of, turns_of
from tasks.worker_ends import WorkerDied

PROOF_STEPS = 4
"""Steps that the proof trains again: one to the save, one to the kill, two after the resume."""

PROBE_SAMPLES = 8
MOST_FED = 512


@dataclass(frozen=True)
class SmallModel:
    """The model of the dry run; `same` when it is the base model itself."""

    folder: Path
    sha256: str
    same: bool


@dataclass(frozen=True)
class Selection:
    """Samples that fit into the dry run's length and are of its objectives, and how many do not fit."""

    pool: Pool
    held_out: list[tuple[str, int]]
    too_long: int

    @property
    def train(self) -> list[tuple[str, int]]:
        """Training samples of the chosen objectives."""
        return self.pool.samples

    @property
    def measured_on(self) -> MeasuredOn:
        """Where the samples of the probe come from: held-out ones, or training samples where none of those fits."""
        return "held-out" if self.held_out else "training"

    @property
    def plain(self) -> frozenset[str]:
        """Which of them are plain text."""
        return self.pool.plain


def run(context: StageContext, progress: Progress) -> StageResult:
    """Train `steps` steps, then prove save, kill and resume. Writes the artifacts that `specs/metrics` names."""
    parameters = DryRunParameters.model_validate(context.parameters)
    model = _model(context, parameters, progress)
    samples = context.inputs["data"] / "artifacts" / "samples.parquet"
    base = (context.base_model, context.spec.base_model) if context.base_model else None
    selection = _select(samples, model, parameters.training, progress, base)
    training = _training(parameters, selection)
    rows = plan_batches(selection.train, training, plain=selection.plain)
    plan = context.artifacts / "batch_plan.parquet"
    write_plan(rows, plan)
    last = rows[-1].step
    if last != parameters.steps:
        raise TrainingError(f"the dry run was to take {parameters.steps} steps, its plan has {last}", "report this")
    job = Job(
        training=training,
        base_model=model.folder,
        base_model_name=parameters.model,
        base_model_sha256=model.sha256,
        samples=samples,
        samples_sha256=sha256_file(samples),
        plan=plan,
        out=context.checkpoints_dir / "worker",
        checkpoints=context.checkpoints_dir / "steps",
        memory_limit_bytes=context.spec.launcher.memory_limit_bytes,
        probe_sample_ids=_probe(selection),
        evaluation_batch=max(1, training.micro_batch // 2),
        fed_samples=min(len(rows), MOST_FED),
        checks=True,
        save_at=[_proof_start(last)],
    )
    run_training(job, context.logs / "worker.log", progress)
    keep_results(job.out, context.artifacts)
    _prove_resume(context, job, last, progress)
    tried = _trials(context, parameters, model, selection, job, progress)
    return StageResult(notes=[*_notes(context, selection, rows, parameters, training), *tried])


def _trials(
    context: StageContext,
    parameters: DryRunParameters,
    model: SmallModel,
    selection: Selection,
    job: Job,
    progress: Progress,
) -> list[str]:
    """Small trials, where the proposal asks for some; what is to be said about them."""
    if not parameters.trials.vary:
        return []

    def material(of: SmallModel, name: str, chosen: Selection) -> Material:
        measured, limit = _probe(chosen, MEASURED), job.memory_limit_bytes
        shared = (job.samples, job.samples_sha256, limit)
        return Material(of.folder, of.sha256, name, chosen.pool, measured, chosen.measured_on, *shared)

    target = None
    if not model.same and context.base_model and context.base_model_sha256:
        base = SmallModel(context.base_model, context.base_model_sha256, True)
        fitting = _select(job.samples, base, parameters.training, progress)
        target = material(base, context.spec.base_model, fitting)
    place = Place(context.checkpoints_dir / "trials", context.artifacts, context.logs / "trials.log")
    small = material(model, parameters.model, selection)
    report = make_trials(parameters.training, parameters.trials, small, target, place, progress)
    return notes(report, context.spec.language)


def _model(context: StageContext, parameters: DryRunParameters, progress: Progress) -> SmallModel:
    if parameters.model == context.spec.base_model and context.base_model and context.base_model_sha256:
        return SmallModel(context.base_model, context.base_model_sha256, True)
    from tasks.models.resolve import resolve_base_model

    hub = context.spec.hub.model_copy(update={"revision": None})  # that one is of the base model
    found = resolve_base_model(parameters.model, context.project_dir, hub, progress)
    return SmallModel(found.folder, found.sha256, False)


def _select(
    samples: Path,
    model: SmallModel,
    training: TrainingConfiguration,
    progress: Progress,
    base: tuple[Path, str] | None = None,
) -> Selection:
    """Samples of at most `max_length` tokens. A model with another tokenizer counts for itself.

    `base` is the base model whose tokens the table counts. Raises `InputError` when it was made for shorter samples.
    """
    import pyarrow.parquet as pq

    columns = ["sample_id", "split", "kind", "fault_type", "prompt", "answer", "n_tokens"]
    rows = pq.read_table(samples, columns=columns_of(columns, pq.read_schema(samples).names)).to_pylist()
    if base is not None:  # of all samples, held-out ones too: evaluation comes after hours of training
        require_within({row["sample_id"]: row["n_tokens"] for row in rows}, *base)
    max_length = training.max_length
    if not model.same:
        from tasks.prompts import PromptTemplate

        template = PromptTemplate.load(model.folder)
        progress.start("tokenising for the small model", len(rows))
        for row in rows:
            row["n_tokens"] = len(template.encode(row["prompt"], row["answer"], turns_of(row)).input_ids)
            progress.advance()
    fits = [row for row in rows if row["n_tokens"] <= max_length]
    train = [row for row in fits if row["split"] == "train"]
    if not train:
        raise InputError(
            f"no training sample has {max_length} tokens or less", "raise max_length of the dry run, or shorten samples"
        )
    held_out = taken([row for row in fits if row["split"] == "eval"], training)
    return Selection(
        pool_of(train, training),
        sorted((row["sample_id"], row["n_tokens"]) for row in held_out),
        sum(1 for row in rows if row["split"] == "train") - len(train),
    )


def _training(parameters: DryRunParameters, selection: Selection) -> TrainingConfiguration:
    """The proposed configuration for exactly `steps` steps, keeping its last saves."""
    asked = selection.pool.for_steps(parameters.training, parameters.steps)
    return asked.model_copy(update={"keep_checkpoints": max(asked.keep_checkpoints, PROOF_STEPS + 2)})


def _probe(selection: Selection, most: int = PROBE_SAMPLES) -> list[str]:
    """A fixed batch spread over the lengths: held-out samples, or training samples where none is held out."""
    pool = [i for i, _ in sorted(selection.held_out or selection.train, key=lambda s: (s[1], s[0]))]
    count = min(most, len(pool))
    return sorted({pool[i * len(pool) // count] for i in range(count)})


def _proof_start(steps: int) -> int:
    """The checkpoint that the proof begins with."""
    return max(1, steps - PROOF_STEPS)


def _prove_resume(context: StageContext, job: Job, steps: int, progress: Progress) -> None:
    """Start from a copy of a checkpoint, save one step later, be killed one step later, resume to the end."""
    start = _proof_start(steps)
    folder = context.checkpoints_dir / "proof"
    with storage_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
        source = job.checkpoints / f"{start:08d}"
        shutil.copytree(source, folder / "steps" / source.name)
        (folder / "worker").mkdir()
        for path in sorted(job.out.glob("*.jsonl")):
            shutil.copyfile(path, folder / "worker" / path.name)
    # with no save but the one asked for, the kill loses a step, and the resume has to train it again
    training = job.training.model_copy(update={"save_steps": steps})
    changes = {
        "training": training,
        "save_at": [start + 1],
        "out": folder / "worker",
        "checkpoints": folder / "steps",
        "checks": False,
    }
    proof = job.model_copy(update=changes)
    progress.say(f"proof of resume: from step {start}, killed after step {start + 2}, started again")
    log = context.logs / "proof.log"
    try:
        run_training(proof.model_copy(update={"kill_after_step": start + 2}), log, progress)
    except WorkerDied as died:
        if died.signal_number != getattr(signal, "SIGKILL", signal.SIGTERM):
            raise
    else:
        raise WorkerError("the worker that was to be killed ended by itself", "report this")
    run_training(proof, log, progress)
    keep_results(proof.out, context.artifacts / "resumed")


def _notes(
    context: StageContext,
    selection: Selection,
    rows: list[PlanRow],
    parameters: DryRunParameters,
    training: TrainingConfiguration,
) -> list[str]:
    used, limit = len({row.sample_id for row in rows}), training.max_length
    before, after, steps = parameters.training.epochs, training.epochs, parameters.steps
    zh = context.spec.language == "zh"
    notes = [
        f"试运行使用 {used} 条训练样本（共 {len(selection.train)} 条符合长度）"
        if zh
        else f"the dry run used {used} of {len(selection.train)} training samples that fit its length"
    ]
    if selection.too_long:
        notes.append(
            f"{selection.too_long} 条训练样本超过 {limit} 个词元，未用于试运行"
            if zh
            else f"{selection.too_long} training samples with more than {limit} tokens were left out of the dry run"
        )
    if selection.measured_on == "training":
        notes.append(
            "没有留出样本符合试运行的长度：固定探测批由训练样本组成"
            if zh
            else "no held-out sample fits the dry run's length: the fixed probe batch is of training samples"
        )
    if training.plain_text_share != parameters.training.plain_text_share:
        asked, took = parameters.training.plain_text_share, training.plain_text_share
        notes.append(
            f"试运行长度内的纯文本不足：占比 {took:.3g}，要求 {asked:.3g}"
            if zh
            else f"too little plain text fits the dry run's length: its share is {took:.3g}, {asked:.3g} was asked for"
        )
    notes += selection.pool.notes(rows, training, context.spec.language)
    if after != before:
        notes.append(
            f"轮数由 {before} 增至 {after}，以完成 {steps} 步"
            if zh
            else f"epochs raised from {before} to {after} to reach {steps} steps"
        )
    return notes
