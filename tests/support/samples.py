"""A small `samples.parquet` on a given model's tokens, a batch plan over it, and a training job on both."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specs.canonical import sha256_file
from specs.parameters import LoraParameters, TrainingConfiguration
from tasks.data.batch_plan import plan_batches, write_plan
from tasks.models.folder import digest_model
from tasks.prompts import PromptTemplate
from tasks.training.job import Job

FAULTS = {
    "E101": ("spindle overheats", "clean the fan filter"),
    "E202": ("axis X does not home", "adjust the limit switch"),
    "E303": ("coolant pressure is low", "replace the pump seal"),
    "E404": ("主轴异响", "更换轴承并加注润滑脂"),
}
WORDS = ("vibration", "noise", "after", "shift", "cold", "start", "tool", "change", "cover", "cable", "检查", "报警")


def write_samples(path: Path, model: Path, count: int = 48, held_out: int = 8, seed: int = 3) -> Path:
    """Repair questions and answers of unequal lengths, and a few plain paragraphs (prompt empty); returns `path`."""
    template = PromptTemplate.load(model)
    rng = random.Random(seed)
    rows = [_row(template, rng, number, "eval" if number >= count - held_out else "train") for number in range(count)]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def _row(template: PromptTemplate, rng: random.Random, number: int, split: str) -> dict[str, Any]:
    code, (phenomenon, repair) = rng.choice(sorted(FAULTS.items()))
    extra = " ".join(rng.choices(WORDS, k=rng.randint(0, 12)))
    plain = number % 12 == 5
    prompt = "" if plain else f"VMC-{rng.randint(1, 3)}: {phenomenon} {extra}"
    answer = f"{code}. {repair}." + (f" {extra}" if plain else "")
    tokens = len(template.encode(prompt, answer).input_ids)
    return {
        "sample_id": f"s{number:04d}",
        "split": split,
        "source": "raw/orders.csv",
        "location": f"raw/orders.csv#{number + 1}",
        "device_model": "VMC",
        "phenomenon": "" if plain else phenomenon,
        "steps": "" if plain else "look",
        "repair": "" if plain else repair,
        "prompt": prompt,
        "answer": answer,
        "text": template.text(prompt, answer),
        "fault_type": "" if plain else code,
        "n_tokens": tokens,
        "bucket": tokens // 16,
        "kind": "manual" if plain else "work_order",
        "component": f"c{number:04d}",
    }


def training_samples(path: Path, split: str = "train") -> list[tuple[str, int]]:
    """(sample_id, n_tokens) of one split."""
    table = pq.read_table(path, columns=["sample_id", "split", "n_tokens"]).to_pylist()
    return [(row["sample_id"], row["n_tokens"]) for row in table if row["split"] == split]


def small_training(**changes: Any) -> TrainingConfiguration:
    """A quick configuration with everything that makes resuming hard: dropout, accumulation, a schedule, two epochs."""
    settings: dict[str, Any] = {
        "lora": LoraParameters(rank=4, alpha=8, dropout=0.05),
        "lr": 2e-3,
        "lr_warmup_steps": 2,
        "epochs": 2,
        "max_steps": 8,
        "micro_batch": 2,
        "gradient_accumulation": 3,
        "max_length": 256,
        "save_steps": 2,
        "keep_checkpoints": 2,
        "threads": 1,
    }
    return TrainingConfiguration(**{**settings, **changes})


def make_job(folder: Path, model: Path, training: TrainingConfiguration | None = None, **changes: Any) -> Path:
    """Samples, plan and `job.json` in `folder`; returns the path of the job. Samples that exist are used again."""
    training = training or small_training()
    samples = folder / "samples.parquet"
    if not samples.exists():
        write_samples(samples, model)
    plan = folder / "batch_plan.parquet"
    write_plan(plan_batches(training_samples(samples), training), plan)
    settings: dict[str, Any] = {
        "training": training,
        "base_model": model,
        "base_model_name": "tiny",
        "base_model_sha256": digest_model(model),
        "samples": samples,
        "samples_sha256": sha256_file(samples),
        "plan": plan,
        "out": folder / "out",
        "checkpoints": folder / "checkpoints",
    }
    path = folder / "job.json"
    path.write_text(Job(**{**settings, **changes}).model_dump_json(indent=1), encoding="utf-8")
    return path
