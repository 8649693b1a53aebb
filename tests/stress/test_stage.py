"""Promises of the stress test when memory ends: real workers of a small model, held to a real limit of memory."""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specs.criteria import judge
from specs.metrics import default_criteria
from specs.parameters import LoraParameters, StressTestParameters, TrainingConfiguration
from specs.stages import Quiet, StageContext
from tasks import stress_test
from tasks.memory.devices import cpu_device
from tasks.stress import trial
from tasks.stress.climbing import read_rungs
from tasks.verify.stress_test import metrics
from tests.support.forked_stage import RunningStage, run_stage
from tests.support.stages import stage_context

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are kept by Linux here")

WORDS = ("spindle", "bearing", "noise", "alarm", "E101", "coolant", "axis")


def write_samples(folder: Path, model: Path) -> int:
    """Samples of very unequal lengths; returns the tokens of the longest."""
    from tasks.prompts import PromptTemplate

    template, draw = PromptTemplate.load(model), random.Random(1)
    rows = []
    for number, words in enumerate([5, 20, 80, 200, 300, 420] * 2):
        prompt, answer = " ".join(draw.choices(WORDS, k=words)), "replace the belt"
        tokens = len(template.encode(prompt, answer).input_ids)
        found = {"sample_id": f"s{number:02d}", "split": "eval" if number % 6 == 1 else "train", "n_tokens": tokens}
        rows.append(
            {**found, "prompt": prompt, "answer": answer, "bucket": tokens // 256, "kind": "note", "fault_type": ""}
        )
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "samples.parquet")
    return max(int(row["n_tokens"]) for row in rows)


@pytest.fixture
def context_with(tmp_path: Path, tiny_model: Path) -> Callable[..., StageContext]:
    longest = write_samples(tmp_path / "data" / "001" / "artifacts", tiny_model)

    def make(memory_gb: float | None, stages: dict[str, Any] | None = None, **changes: Any) -> StageContext:
        settings = {
            "lora": LoraParameters(rank=4),
            "micro_batch": 10,
            "gradient_accumulation": 1,
            "threads": 1,
            "max_steps": 1,
        }
        training = TrainingConfiguration(**{**settings, "max_length": longest, **changes})
        parameters = StressTestParameters(training=training, growth_steps=1).model_dump(mode="json")
        spec = {"launcher": {"memory_gb": memory_gb}, "stages": {"stress_test": stages or {}}}
        return stage_context(
            "stress_test", tmp_path, tiny_model, parameters, {"data": tmp_path / "data" / "001"}, **spec
        )

    return make


def verified(context: StageContext) -> dict[str, Any]:
    return metrics(context.out_dir, context.inputs, json.loads(context.model_dump_json()))


def failed(found: dict[str, Any]) -> set[str]:
    return {v.metric for v in judge(default_criteria("stress_test"), found) if v.blocking and not v.passed}


def test_the_ladder_finds_what_runs_within_the_limit_and_every_rung_is_written_down(context_with):
    context = context_with(0.75)
    outcome = run_stage(context)
    assert "the ladder took micro_batch 10 ->" in outcome["notes"][-1]
    rungs = read_rungs(context.artifacts / "ladder.jsonl")
    assert [r.rung for r in rungs[:4]] == ["approved", "processes", "allocator", "probe"]
    assert rungs[0].outcome == "out_of_memory"
    assert "can't allocate memory" in rungs[0].why
    taken = next(r for r in rungs if r.taken)
    assert taken.outcome == "runs"
    assert taken.peak_bytes < 0.75 * 2**30
    settings = json.loads((context.artifacts / "settings.json").read_bytes())["requested"]
    assert settings["micro_batch"] == taken.changes["micro_batch"] < 10
    assert settings["micro_batch"] * settings["gradient_accumulation"] == 10
    found = verified(context)
    assert found["settings_unexplained"].value == 0
    assert found["out_of_memory"].value >= 1
    assert failed(found) <= {"usable_share"}


def test_nothing_is_taken_when_nothing_runs_and_the_way_out_is_named(context_with):
    context = context_with(0.32, activation_checkpointing=True, optimizer="sgd")
    outcome = run_stage(context)
    assert outcome["class"] == "OutOfMemory"
    assert "not even one sample of at most 512 tokens" in outcome["message"]
    assert "a person decides" in outcome["hint"]
    assert not list(context.artifacts.iterdir())
    assert len(read_rungs(context.checkpoints_dir / "ladder.jsonl")) >= 3


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_share_the_memory_of_a_cpu_once(context_with, ranks):
    context = context_with(None, ranks=ranks, gradient_accumulation=2)
    parameters = StressTestParameters.model_validate(context.parameters)
    bench = stress_test._bench(context, parameters, Quiet())
    job = trial._job(trial.prepare(bench, context.checkpoints_dir / "001", parameters.training), bench)
    assert job.memory_limit_bytes == cpu_device().usable_bytes // ranks


@pytest.mark.slow
def test_what_the_spec_fixes_is_not_taken(context_with):
    context = context_with(0.75, stages={"micro_batch": 10, "activation_checkpointing": False, "optimizer": "adamw"})
    outcome = run_stage(context)
    assert outcome["class"] == "OutOfMemory"
    assert "fixed to 10 by stages.stress_test.micro_batch" in outcome["message"]


@pytest.mark.slow
def test_a_climb_that_is_killed_in_the_middle_goes_on_with_the_rungs_it_has(context_with):
    context = context_with(0.75)
    stage = RunningStage(context)
    record = context.checkpoints_dir / "ladder.jsonl"
    wait_for(lambda: len(read_rungs(record)) >= 4)
    before = read_rungs(record)
    stage.kill()
    shutil.rmtree(context.out_dir)  # a restarted attempt begins with an empty folder; the checkpoints stay
    for name in ("artifacts", "plots", "logs"):
        (context.out_dir / name).mkdir(parents=True)
    outcome = run_stage(context)
    assert "notes" in outcome, outcome
    after = read_rungs(context.artifacts / "ladder.jsonl")
    assert [r.model_copy(update={"taken": False}) for r in after[: len(before)]] == before
    assert verified(context)["settings_unexplained"].value == 0


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
def test_a_setting_that_nobody_approved_and_no_rung_took_is_counted(context_with):
    context = context_with(None, micro_batch=2, gradient_accumulation=5)
    assert "notes" in run_stage(context)
    assert verified(context)["settings_unexplained"].value == 0
    path = context.artifacts / "settings.json"
    settings = json.loads(path.read_bytes())
    settings["requested"]["lr"] = 0.5
    path.write_text(json.dumps(settings))
    assert verified(context)["settings_unexplained"].value == 2  # neither approved nor in configuration.json
