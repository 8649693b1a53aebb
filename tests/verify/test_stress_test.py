"""Promises of the stress test: it runs the worst planned batches for real, and its verifier sees when it did not."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specs.criteria import judge
from specs.metrics import default_criteria
from specs.parameters import StressTestParameters, TrainingConfiguration
from specs.project import Project
from specs.stages import StageContext
from tasks.data.batch_plan import PlanRow, plan_batches
from tasks.memory.worst import stress_plan, worst_steps
from tasks.verify.stress_test import metrics
from tests.support.forked_stage import run_stage

WORDS = ["spindle", "bearing", "noise", "alarm", "E101", "coolant", "axis", "drive", "replace", "belt", "overheats"]


def write_samples(folder: Path, model: Path) -> int:
    """Thirty samples as the data stage leaves them; returns the tokens of the longest."""
    from tasks.prompts import PromptTemplate

    template, draw = PromptTemplate.load(model), random.Random(1)
    rows = []
    for number in range(30):
        prompt, answer = (" ".join(draw.choices(WORDS, k=draw.randint(2, 16))) for _ in range(2))
        tokens = len(template.encode(prompt, answer).input_ids)
        split = "eval" if number % 6 == 0 else "train"
        found = {"sample_id": f"s{number:02d}", "split": split, "prompt": prompt, "answer": answer, "n_tokens": tokens}
        rows.append({**found, "kind": "note", "fault_type": ""})
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "samples.parquet")
    return max(int(row["n_tokens"]) for row in rows)


@pytest.fixture(scope="module")
def finished(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> StageContext:
    """A stress test of the tiny model, run to its end."""
    from tasks.models.folder import digest_model

    root = tmp_path_factory.mktemp("stress")
    longest = write_samples(root / "01-data" / "001" / "artifacts", tiny_model)
    training = TrainingConfiguration(micro_batch=2, gradient_accumulation=2, max_length=longest, lr=1e-3)
    out = root / "03-stress_test" / "001"
    for name in ("artifacts", "plots", "logs"):
        (out / name).mkdir(parents=True)
    spec = {"project": "p", "base_model": "tiny", "sources": [{"kind": "notes", "path": "notes.md"}]}
    context = StageContext(
        run="r",
        stage="stress_test",
        attempt=1,
        project_dir=root,
        spec=Project.model_validate(spec),
        parameters=StressTestParameters(training=training, growth_steps=2).model_dump(),
        inputs={"data": root / "01-data" / "001"},
        base_model=tiny_model,
        base_model_sha256=digest_model(tiny_model),
        out_dir=out,
        checkpoints_dir=root / "checkpoints",
    )
    assert "notes" in (outcome := run_stage(context)), outcome
    return context


def verify(context: StageContext, attempt: Path) -> dict[str, Any]:
    """The metrics of an attempt, from its artifacts alone."""
    return metrics(attempt, context.inputs, json.loads(context.model_dump_json()))


def test_a_run_stress_test_meets_its_blocking_criteria(finished: StageContext):
    found = verify(finished, finished.out_dir)
    verdicts = judge(default_criteria("stress_test"), found)
    assert [v for v in verdicts if v.blocking and not v.passed] == []
    assert found["peak_bytes"].value is not None
    assert found["resume_loss_difference"].value == 0


def test_measured_and_predicted_are_kept_apart_and_named(finished: StageContext):
    measured = json.loads((finished.artifacts / "measurement.json").read_bytes())
    assert {"load", "train", "save", "evaluate", "resume"} <= measured["phases"].keys()
    assert measured["peak_allocated_bytes"] == measured["peak_bytes"] - measured["baseline_bytes"]
    account = json.loads((finished.artifacts / "account.json").read_bytes())
    assert account["residents"]["framework"] == measured["baseline_bytes"]
    assert account["coefficients"]["relative_error"] <= 0.001
    device = json.loads((finished.artifacts / "device.json").read_bytes())
    assert device["threads"] == 2
    settings = json.loads((finished.artifacts / "settings.json").read_bytes())
    assert len(settings["fingerprint"]) == 64


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def forget_worst_batches(artifacts: Path) -> None:
    write_lines(artifacts / "micro_batches.jsonl", lines_of(artifacts / "micro_batches.jsonl")[:1])


def forget_to_finish(artifacts: Path) -> None:
    write_lines(artifacts / "metrics.jsonl", [{**lines_of(artifacts / "metrics.jsonl")[0], "step": 99}])


def feed_other_samples(artifacts: Path) -> None:
    lines = lines_of(artifacts / "micro_batches.jsonl")
    write_lines(artifacts / "micro_batches.jsonl", [{**x, "sample_ids": x["sample_ids"][::-1]} for x in lines])


def plan_a_sample_twice(artifacts: Path) -> None:
    table = pq.read_table(artifacts / "batch_plan.parquet").to_pylist()
    table[0]["sample_id"], table[0]["n_tokens"] = table[1]["sample_id"], table[1]["n_tokens"]
    pq.write_table(pa.Table.from_pylist(table), artifacts / "batch_plan.parquet")


def need_twice_the_memory(artifacts: Path) -> None:
    lines = lines_of(artifacts / "metrics.jsonl")
    write_lines(artifacts / "metrics.jsonl", [{**x, "memory_bytes": 2 * x["memory_bytes"]} for x in lines])


def fill_the_device(artifacts: Path) -> None:
    """As promised, and more than nine tenths of what can be used."""
    path = artifacts / "measurement.json"
    found = json.loads(path.read_bytes())
    path.write_text(json.dumps(found | {"usable_bytes": round(found["peak_bytes"] / 0.91)}), "utf-8")


def resume_elsewhere(artifacts: Path) -> None:
    lines = lines_of(artifacts / "resumed" / "metrics.jsonl")
    write_lines(artifacts / "resumed" / "metrics.jsonl", [{**x, "loss": x["loss"] + 1e-6} for x in lines])


def lose_a_step(artifacts: Path) -> None:
    lines = lines_of(artifacts / "metrics.jsonl")
    write_lines(artifacts / "metrics.jsonl", [{**lines[0], "grad_norm": None}, *lines[1:]])


@pytest.mark.parametrize(
    ("fault", "metric"),
    [
        (forget_worst_batches, "worst_batches_unmeasured"),
        (forget_to_finish, "worst_batches_unmeasured"),
        (feed_other_samples, "worst_batches_unmeasured"),
        (plan_a_sample_twice, "planned_samples_wrong"),
        (need_twice_the_memory, "peak_ratio"),
        (fill_the_device, "usable_share"),
        (resume_elsewhere, "resume_loss_difference"),
        (lose_a_step, "nonfinite_steps"),
    ],
)
def test_a_fault_turns_its_metric_red(
    finished: StageContext, tmp_path: Path, fault: Callable[[Path], None], metric: str
):
    attempt = tmp_path / "attempt"
    shutil.copytree(finished.out_dir, attempt)
    fault(attempt / "artifacts")
    verdicts = judge(default_criteria("stress_test"), verify(finished, attempt))
    assert metric in {v.metric for v in verdicts if v.blocking and not v.passed}


def test_far_less_than_promised_warns_and_does_not_stop(finished: StageContext, tmp_path: Path):
    attempt = tmp_path / "attempt"
    shutil.copytree(finished.out_dir, attempt)
    path = attempt / "artifacts" / "account.json"
    account = json.loads(path.read_bytes())
    path.write_text(json.dumps(account | {"predicted_peak_bytes": 2 * account["predicted_peak_bytes"]}), "utf-8")
    verdicts = judge(default_criteria("stress_test"), verify(finished, attempt))
    assert [(v.metric, v.blocking) for v in verdicts if not v.passed] == [("peak_ratio_low", False)]


def test_without_artifacts_nothing_passes(finished: StageContext, tmp_path: Path):
    found = verify(finished, tmp_path)
    assert {name for name, metric in found.items() if metric.value is not None} == set()


def test_the_verifier_imports_nothing_of_what_it_verifies():
    code = "import tasks.verify.stress_test, sys; assert not {'tasks.stress_test', 'tasks.memory'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_worst_steps_are_found_wherever_they_are():
    training = TrainingConfiguration(micro_batch=2, gradient_accumulation=2, max_length=500, epochs=2)
    rows = plan_batches([(f"s{i:02d}", 20 + 7 * i) for i in range(23)], training)
    worst = worst_steps(rows)
    assert {why for w in worst for why in w.why} == {"most_padded_tokens", "longest_sample", "heaviest_micro_batch"}
    totals: dict[int, int] = {}
    for row in rows:
        totals[row.step] = totals.get(row.step, 0) + row.padded_tokens
    assert worst[0].padded_tokens == max(totals.values())
    assert max(w.longest for w in worst) == max(row.n_tokens for row in rows)


def test_a_short_plan_repeats_the_heaviest_and_leaves_a_step_to_resume():
    rows = [PlanRow(1, s, 0, 0, 0, f"s{s}", n, n) for s, n in enumerate((5, 9, 7), start=1)]
    plan = stress_plan(rows, worst_steps(rows), 3)
    assert plan.planned == {1: 2, 2: 2, 3: 2, 4: 2}
    assert plan.save_at == 3
    assert [row.sample_id for row in plan.rows] == ["s2"] * 4
