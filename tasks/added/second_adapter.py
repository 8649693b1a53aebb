"""`second_adapter`: train another adapter on the same plan with other settings, and compare it with the first one.

Inputs: `samples`, `plan` (batch_plan.parquet), `settings` (settings.json of train), `losses` (eval_losses.parquet of
evaluate). Writes the adapter, its logs, and `second/eval_losses.parquet`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from specs.canonical import sha256_file
from specs.errors import InputError, TrainingError
from specs.files import write_json
from specs.parameters import EvaluateParameters, TrainingConfiguration
from specs.stages import Progress
from tasks.added.job import AddedJob, Answer


def run(job: AddedJob, progress: Progress) -> Answer:
    """Train to the end of the plan, then measure the losses of the held-out samples as `evaluate` does."""
    from tasks.training.job import Job
    from tasks.training.launch import keep_results, run_training, training_notes

    if job.base_model is None or job.base_model_sha256 is None or job.checkpoints is None:
        raise InputError("second_adapter needs the base model", "set needs_model: true")
    training = configuration(job)
    worker = job.checkpoints / "worker"
    order = Job(
        training=training,
        base_model=job.base_model,
        base_model_name=str(job.spec["base_model"]),
        base_model_sha256=job.base_model_sha256,
        samples=job.inputs["samples"],
        samples_sha256=sha256_file(job.inputs["samples"]),
        plan=job.inputs["plan"],
        out=worker,
        checkpoints=job.checkpoints,
    )
    result = run_training(order, job.artifacts.parent / "logs" / "training.log", progress)
    if not result.finished:
        raise TrainingError(f"it ended after {result.steps} of {result.planned} steps", "`gatewright resume` goes on")
    keep_results(worker, job.artifacts)
    _evaluate(job, training, progress)
    return Answer(notes=training_notes(job.artifacts, job.language))


def configuration(job: AddedJob) -> TrainingConfiguration:
    """The configuration of the first adapter, with the rank, rate and seed of this one."""
    first = nested(json.loads(job.inputs["settings"].read_bytes())["requested"])
    wanted = job.parameters
    lora = {**first["lora"], "rank": wanted["rank"], "alpha": 2 * wanted["rank"]}
    own = {"lora": lora, "lr": first["lr"] * wanted["lr_factor"], "seed": wanted["seed"], "early_judgement": "off"}
    return TrainingConfiguration.model_validate({**first, **own})


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted paths as nested objects; what is nested already stays."""
    found: dict[str, Any] = {}
    for path, value in flat.items():
        *heads, last = path.split(".")
        place = found
        for head in heads:
            place = place.setdefault(head, {})
        place[last] = value
    return found


def _evaluate(job: AddedJob, training: TrainingConfiguration, progress: Progress) -> None:
    from tasks.evaluate.job import EvaluatedSample, EvaluateJob
    from tasks.evaluate.stage import held_out
    from tasks.workers import run_worker

    out = job.artifacts / "second"
    out.mkdir(exist_ok=True)
    settings = json.loads((job.artifacts / "settings.json").read_bytes())["effective"]
    order = EvaluateJob(
        base_model=job.base_model or job.artifacts,
        base_model_sha256=job.base_model_sha256 or "",
        trained=job.artifacts,
        weights="fp32" if str(settings["weights"]).startswith("nf4") else settings["weights"],
        attention=settings["attention"],
        samples=[EvaluatedSample(**row) for row in held_out(job.inputs["samples"])],
        generate=[],
        parameters=EvaluateParameters(generations=1, threads=training.threads),
        out=out,
    )
    path = job.artifacts.parent / "logs" / "evaluate_job.json"
    write_json(path, order)
    run_worker("tasks.evaluate.worker", path, path.with_name("evaluate.log"), progress, threads=training.threads)


def metrics(job: AddedJob, progress: Progress) -> Answer:
    """From logs, plan and losses alone."""
    from tasks.verify import training_logs as logs
    from tasks.verify.tensors import adapter_norm, trained_folder

    planned = logs.table(job.inputs["plan"])
    lines = logs.lines(job.artifacts / "metrics.jsonl")
    fed = logs.lines(job.artifacts / "micro_batches.jsonl")
    folders = [folder for kind, folder in trained_folder(job.artifacts) if kind == "adapter"]
    second = _loss(logs.table(job.artifacts / "second" / "eval_losses.parquet"))
    first = _loss(logs.table(job.inputs["losses"]))
    found = {
        "steps_missing": logs.steps_missing(planned, lines).value,
        "nonfinite_steps": logs.nonfinite_steps(lines).value,
        "order_mismatches": logs.order_mismatches(planned, fed).value,
        "adapter_change": adapter_norm(folders[0]) if folders else None,
        "eval_loss_first": first,
        "eval_loss_second": second,
        "eval_loss_difference": second - first if first is not None and second is not None else None,
    }
    reasons = {name: "an artifact does not show it" for name, value in found.items() if value is None}
    return Answer(metrics=found, reasons=reasons)


def _loss(rows: Any) -> float | None:
    """Held-out loss in nats per answer token, over all samples."""
    tokens = sum(int(row["n_answer_tokens"]) for row in rows)
    return sum(float(row["loss_adapter"]) * int(row["n_answer_tokens"]) for row in rows) / tokens if tokens else None
