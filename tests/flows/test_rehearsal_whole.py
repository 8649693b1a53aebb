"""A whole rehearsal through the command line, on the Chinese example with the tiny model: real stages, no shortcuts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.cli import advance, gatewright

pytestmark = pytest.mark.slow

SHARE = 0.05


@pytest.fixture(scope="module")
def rehearsed(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("rehearsal") / "demo"
    made = gatewright("init", project, "--example", "cnc-repair", "--lang", "zh", cwd=project.parent)
    assert made.code == 0, made.err
    began = gatewright("run", ".", "--run-id", "small", "--rehearse", str(SHARE), "--json", cwd=project)
    assert began.code == 3, began.err
    ended = advance(project)
    assert ended.code == 0, ended.err
    return project


def evidence(project: Path, stage: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project / "runs/small" / stage / "001/evidence.json").read_bytes())
    return found


def rows(project: Path) -> list[dict[str, Any]]:
    path = project / "runs/small/01-data/001/artifacts/samples.parquet"
    found: list[dict[str, Any]] = pq.read_table(path, columns=["sample_id", "split", "n_tokens"]).to_pylist()
    return found


def test_it_trains_on_its_part_with_the_longest_sample_stops_half_way_and_goes_on(rehearsed):
    train = [r for r in rows(rehearsed) if r["split"] == "train"]
    plan = pq.read_table(rehearsed / "runs/small/03-stress_test/001/artifacts/batch_plan.parquet").to_pylist()
    used = {r["sample_id"] for r in plan}
    assert SHARE * len(train) <= len(used) <= SHARE * len(train) + 2
    assert max(r["n_tokens"] for r in plan) == max(r["n_tokens"] for r in train)
    metrics = evidence(rehearsed, "04-train")["metrics"]
    assert (metrics["resumes"]["value"], metrics["resumes_unproven"]["value"]) == (1, 0)
    assert metrics["continuity_checked"]["value"] >= 1
    assert metrics["steps_taken"]["value"] == max(r["step"] for r in plan)


def test_it_evaluates_its_part_and_what_was_learnt_blocks_nothing(rehearsed):
    found = evidence(rehearsed, "05-evaluate")
    assert 8 <= found["metrics"]["samples_evaluated"]["value"] <= 10
    assert not any(v["blocking"] for v in found["verdicts"] if v["metric"].startswith("pairing"))
    assert "演练" in (rehearsed / "runs/small/05-evaluate/001/report.md").read_text(encoding="utf-8")


def test_it_is_over_without_a_release_and_the_history_verifies(rehearsed):
    status = gatewright("status", "--json", cwd=rehearsed).json
    assert (status["state"], status["rehearsal"], status["gate"]) == ("finished", SHARE, None)
    assert not (rehearsed / "runs/small/release").exists()
    events = gatewright("audit", "list", "--json", cwd=rehearsed).json["events"]
    last = events[-1]["payload"]
    settings = json.loads((rehearsed / "runs/small/04-train/001/artifacts/settings.json").read_bytes())
    assert (last["passed"], last["rehearsed"]) == (True, settings["fingerprint"])
    assert [e["payload"]["decision"]["gate"] for e in events if e["kind"] == "decision.recorded"] == [
        "data",
        "dry_run",
        "stress_test",
        "train",
        "evaluate",
    ]
    assert gatewright("audit", "verify", "--json", cwd=rehearsed).code == 0
    assert gatewright("verify", "small", "--json", cwd=rehearsed).code == 0
