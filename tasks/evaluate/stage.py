"""The `evaluate` stage: what the adapter changed on held-out samples, in losses and in answers side by side."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specs.canonical import canonical_bytes
from specs.errors import InputError
from specs.files import write_bytes
from specs.parameters import EvaluateParameters
from specs.stages import Progress, StageContext, StageResult
from tasks.evaluate.general_text import Drawn, draw_passages
from tasks.evaluate.job import EvaluatedSample, EvaluateJob, GeneralPassage
from tasks.evaluate.pairing import Question, mispair
from tasks.evaluate.selection import choose_questions
from tasks.parents import require_parent
from tasks.rehearsal import EVALUATED, rehearsed
from tasks.turns import COLUMN, columns_of
from tasks.workers import run_worker

_NOTES = {
    "en": {
        "unpaired": "{n} held-out questions have no answer of another fault type to be compared with",
        "plain": "{n} held-out samples are plain text: they count for losses only",
        "few": "{n} answers generated of {asked} asked for: there are no more held-out questions",
        "dequantized": "trained on {weights} weights, evaluated on fp32 weights of the same base model",
    },
    "zh": {
        "unpaired": "{n} 个留出问题找不到其他故障类型的答案可供对比",
        "plain": "{n} 个留出样本是纯文本，只计入损失",
        "few": "要求生成 {asked} 个回答，留出问题只够 {n} 个",
        "dequantized": "训练用 {weights} 权重，评估用同一基座的 fp32 权重",
    },
}


def run(context: StageContext, progress: Progress) -> StageResult:
    """Losses of base and adapter on own and mispaired answers, and answers in full, in a worker process.

    Writes `eval_losses.parquet`, `generations.jsonl` and `evaluated.json`, and `general_losses.parquet` where the spec
    names general text. Raises `InputError` without held-out samples or trained weights.
    """
    job, notes = make_job(context)
    path = context.logs / "evaluate_job.json"
    write_bytes(path, canonical_bytes(job))
    context.artifacts.mkdir(parents=True, exist_ok=True)
    run_worker("tasks.evaluate.worker", path, context.logs / "evaluate.log", progress, threads=job.parameters.threads)
    return StageResult(notes=notes)


def make_job(context: StageContext) -> tuple[EvaluateJob, list[str]]:
    """The worker's job, and in words what could not be done as asked."""
    parameters = EvaluateParameters.model_validate(context.parameters)
    if context.base_model is None or context.base_model_sha256 is None:
        raise InputError("evaluate needs a base model", "set base_model in project.yaml")
    trained = context.inputs["train"] / "artifacts"
    if not any((trained / kind).is_dir() for kind in ("adapter", "model")):
        raise InputError(f"{trained} holds neither adapter/ nor model/", "run the train stage first")
    effective = json.loads((trained / "settings.json").read_bytes())["effective"]
    rows = _used(context, held_out(context.inputs["data"] / "artifacts" / "samples.parquet"))
    asked = [r for r in rows if r["prompt"]]
    pairs = mispair([Question(r["sample_id"], r["fault_type"], r["answer"]) for r in asked], parameters.seed)
    generate = choose_questions(
        {r["sample_id"]: r["fault_type"] for r in asked}, parameters.generations, parameters.seed
    )
    drawn = _general(context, parameters.seed)
    record = context.spec.parent_record
    quantized = effective["weights"].startswith("nf4")
    job = EvaluateJob(
        base_model=context.base_model,
        base_model_sha256=context.base_model_sha256,
        trained=trained,
        parent=require_parent(context),
        parent_sha256=record.weights_sha256 if record else None,
        weights="fp32" if quantized else effective["weights"],
        attention=effective["attention"],
        samples=[EvaluatedSample(**r, mispaired_with=pairs.get(r["sample_id"])) for r in rows],
        general=[GeneralPassage(**asdict(p)) for p in drawn.passages],
        generate=generate,
        parameters=parameters,
        out=context.artifacts,
    )
    counts = {
        "unpaired": sum(other is None for other in pairs.values()),
        "plain": len(rows) - len(asked),
        "few": len(generate) if len(generate) < parameters.generations else 0,
        "dequantized": int(quantized),
    }
    texts = _NOTES[context.spec.language]
    values = {"asked": parameters.generations, "weights": effective["weights"]}
    said = [texts[name].format(n=n, **values) for name, n in counts.items() if n]
    return job, [*said, *(drawn.notes(context.spec.language) if drawn.passages else [])]


def _general(context: StageContext, seed: int) -> Drawn:
    """Passages of the general text that project.yaml names; none without one."""
    asked = context.spec.general_text
    if asked is None or context.base_model is None:
        return Drawn()
    import pyarrow.parquet as pq

    from tasks.prompts import PromptTemplate

    samples = context.inputs["data"] / "artifacts" / "samples.parquet"
    columns = columns_of(["prompt", "answer"], pq.read_schema(samples).names)
    trained = pq.read_table(samples, columns=columns, filters=[("split", "=", "train")]).to_pylist()
    return draw_passages(context.project_dir, asked, PromptTemplate.load(context.base_model), trained, seed)


def _used(context: StageContext, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All held-out rows; of a rehearsal its part of them."""
    if context.spec.rehearsal is None:
        return rows
    samples = context.inputs["data"] / "artifacts" / "samples.parquet"
    chosen = rehearsed(samples, "eval", context.spec.rehearsal, EVALUATED)
    return [row for row in rows if row["sample_id"] in chosen]


def held_out(samples: Path) -> list[dict[str, Any]]:
    """Held-out rows of samples.parquet, sorted by id. Raises `InputError` when there are none."""
    import pyarrow.parquet as pq

    columns = ["sample_id", "split", "kind", "fault_type", "prompt", "answer"]
    table = pq.read_table(samples, columns=columns_of(columns, pq.read_schema(samples).names)).to_pylist()
    rows = [
        {**{name: row[name] or "" for name in columns}, COLUMN: row.get(COLUMN)}
        for row in table
        if row["split"] == "eval"
    ]
    if not rows:
        raise InputError(f"{samples} has no held-out samples", "raise eval_share of the data stage")
    for row in rows:
        del row["split"]
    return sorted(rows, key=lambda row: str(row["sample_id"]))
