"""Adapters trained on true, shuffled and no labels, and evaluated by the real evaluation."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specs.parameters import LoraParameters, TrainingConfiguration
from specs.stages import Quiet, StageContext
from tasks.data.batch_plan import plan_batches, write_plan
from tasks.evaluate.stage import make_job
from tasks.interrupts import StopRequest
from tests.evaluate.repair_examples import paragraph, short_records
from tests.support.stages import stage_context

STEPS, BATCH, LR = 100, 8, 1e-2
PARAMETERS = {"generations": 8, "max_new_tokens": 16, "generation_batch": 8, "loss_batch": 16, "threads": 1}
TRAINING = TrainingConfiguration(lora=LoraParameters(rank=16, alpha=32, dropout=0.0), lr=LR, threads=1)


@dataclass
class Evaluated:
    """An evaluated training: folders of the inputs, and of the attempt."""

    inputs: dict[str, Path]
    context: StageContext

    @property
    def plain_context(self) -> dict[str, Any]:
        """As the verifier is given it."""
        plain: dict[str, Any] = self.context.model_dump(mode="json")
        return plain


@dataclass
class Lab:
    """Makes evaluated trainings, each once."""

    folder: Path
    model: Path
    made: dict[tuple[str, str], Evaluated] = field(default_factory=dict)

    def evaluated(self, language: str, labels: str) -> Evaluated:
        """`labels`: true, shuffled over all fault types, or none (an adapter that was never trained)."""
        key = (language, labels)
        if key not in self.made:
            prepared = self.prepared(language, labels)
            from tasks.evaluate.worker import evaluate

            job, _ = make_job(prepared.context)
            evaluate(job, Quiet(), StopRequest())
            self.made[key] = prepared
        return self.made[key]

    def prepared(self, language: str, labels: str, attempt: int = 1) -> Evaluated:
        """Inputs of the stage, and its context."""
        project = self.folder / f"{language}-{labels}-{attempt}"
        inputs = {name: project / name / "001" for name in ("data", "stress_test", "train")}
        for folder in inputs.values():
            (folder / "artifacts").mkdir(parents=True)
        rows = [*short_records(language), paragraph(language)]
        pq.write_table(pa.Table.from_pylist(rows), inputs["data"] / "artifacts" / "samples.parquet")
        train = [r for r in rows if r["split"] == "train"]
        planned = plan_batches([(r["sample_id"], 32) for r in train], TRAINING)
        write_plan(planned, inputs["stress_test"] / "artifacts" / "batch_plan.parquet")
        artifacts = inputs["train"] / "artifacts"
        train_adapter(self.model, train, labels, artifacts)
        effective = {"weights": "fp32", "attention": "sdpa"}
        (artifacts / "settings.json").write_text(json.dumps({"effective": effective, "requested": {}}))
        context = stage_context("evaluate", project, self.model, PARAMETERS, inputs, language=language)
        return Evaluated(inputs, context)


def train_adapter(model_folder: Path, rows: list[dict[str, Any]], labels: str, artifacts: Path) -> None:
    """A plain LoRA loop: what matters here is what was learnt, not how."""
    import torch

    from tasks.prompts import PromptTemplate
    from tasks.training.models import build_trainable, export

    torch.set_num_threads(1)
    template = PromptTemplate.load(model_folder)
    draw = random.Random(9)
    answers = [r["answer"] for r in rows]
    if labels == "shuffled":
        draw.shuffle(answers)
    encoded = [template.encode(r["prompt"], a) for r, a in zip(rows, answers, strict=True)]
    model = build_trainable(model_folder, TRAINING, "cpu")
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR)
    order: list[int] = []
    for step in range(0 if labels == "none" else STEPS):
        if len(order) < BATCH:
            order = draw.sample(range(len(encoded)), len(encoded))
        batch = [encoded[order.pop()] for _ in range(BATCH)]
        longest = max(len(e.input_ids) for e in batch)
        ids = torch.zeros(BATCH, longest, dtype=torch.long)
        mask, targets = torch.zeros_like(ids), torch.full_like(ids, -100)
        for row, e in enumerate(batch):
            n = len(e.input_ids)
            ids[row, :n], mask[row, :n] = torch.tensor(e.input_ids), 1
            targets[row, e.trainable_from : n] = ids[row, e.trainable_from : n]
        for group in optimizer.param_groups:
            group["lr"] = LR * min(1.0, (step + 1) / 10) * max(0.02, 0.5 * (1 + math.cos(math.pi * step / STEPS)))
        model(input_ids=ids, attention_mask=mask, labels=targets).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    export(model.eval(), model_folder, "tiny", artifacts)


@pytest.fixture(scope="session")
def lab(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Evaluated trainings on the tiny model."""
    return Lab(tmp_path_factory.mktemp("lab"), tiny_model)


@pytest.fixture(scope="session")
def verdicts_of() -> Callable[[Evaluated], dict[str, bool]]:
    """Metric to passed, as the verifier and the default criteria see an evaluated training."""
    from specs.criteria import judge
    from specs.metrics import default_criteria
    from tasks.verify.evaluate import metrics

    def verdicts(evaluated: Evaluated) -> dict[str, bool]:
        found = metrics(evaluated.context.out_dir, evaluated.inputs, evaluated.plain_context)
        return {v.metric: v.passed for v in judge(default_criteria("evaluate"), found)}

    return verdicts
