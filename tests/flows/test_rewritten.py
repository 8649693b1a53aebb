"""After an added stage has rewritten the samples, proposals count on the samples that training will read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from flows.rewritten import as_rewritten
from flows.workspace import Workspace
from specs.criteria import Metric
from specs.results import Evidence
from tests.support.stages import small_spec

REWRITING = {
    "expand": {
        "inputs": {"samples": "data/samples.parquet"},
        "task": "tasks.added.x:run",
        "outputs": ["samples.parquet"],
        "rewrites": "data/samples.parquet",
        "metrics": {"m": {"unit": "count", "self_reported": True}},
    }
}


def evidence(stage: str) -> Evidence:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Evidence(
        stage=stage,
        attempt=1,
        run="r",
        parameters_sha256="a" * 64,
        inputs={},
        metrics={"longest_sample": Metric(value=5, unit="tokens"), "rows_total": Metric(value=9, unit="rows")},
        verdicts=[],
        artifacts=[],
        started_at=at,
        ended_at=at,
    )


def test_the_longest_rewritten_sample_counts(tmp_path: Path):
    spec = small_spec(added_stages=REWRITING)
    workspace = Workspace(tmp_path, "r")
    workspace.folder.mkdir(parents=True)
    (workspace.folder / "spec.json").write_text(spec.model_dump_json())
    table = workspace.attempt("expand", 1) / "artifacts" / "samples.parquet"
    assert table.parts[-4] == "02-expand"
    table.parent.mkdir(parents=True)
    pq.write_table(pa.table({"split": ["train", "train", "eval"], "n_tokens": [10, 20, 40]}), table)
    both = {"data": evidence("data"), "expand": evidence("expand")}
    found, lengths = as_rewritten(workspace, spec, both, {"tokens": {"mean": 3, "total": 7}})
    assert {n: m.value for n, m in found["data"].metrics.items()} == {
        "longest_sample": 40,
        "rows_total": 9,
        "samples_train": 2,
        "samples_eval": 1,
    }
    assert lengths["tokens"] == {"mean": 15.0, "total": 7}
    before, _ = as_rewritten(workspace, spec, {"data": evidence("data")}, {})
    assert before["data"].metrics["longest_sample"].value == 5
