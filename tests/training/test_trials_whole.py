"""Small trials through real workers: paired, verified, confirmed on the base model, and the same after a kill."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from specs.parameters import DryRunParameters, LoraParameters, TrainingConfiguration
from specs.stages import Quiet, StageContext
from specs.trials import TrialDimension, TrialParameters, TrialsReport
from tasks.dry_run_trials import Material, Place, make_trials
from tasks.pool import training_pool
from tasks.training.job import Job
from tasks.training.trial_ends import DIVERGED
from tasks.training.trial_worker import Trials
from tasks.verify import dry_run as verify_dry_run
from tests.support.forked import train
from tests.support.forked_stage import RunningStage, run_stage
from tests.support.samples import small_training
from tests.support.stages import stage_context

pytestmark = pytest.mark.skipif(os.name == "nt", reason="training on Windows is by WSL2")

TRIAL_WORKER = "tasks.training.trial_worker"


def test_trials_of_one_process_end_as_trainings_of_their_own_and_one_that_diverges_stops_no_other(job_in, tmp_path):
    """Two trainings with another one before and between them, whose adapter overflows in its first step."""
    changes: dict[str, Any] = {"max_steps": 3, "save_steps": 3, "lr_warmup_steps": 0}
    calm = small_training(**changes)
    wild = small_training(**changes, lora=LoraParameters(rank=4, alpha=1e38))
    jobs = []
    for name, training in (("wild-1", wild), ("calm-1", calm), ("wild-2", wild), ("calm-2", calm)):
        path = job_in(tmp_path / name, training, probe_every=2)
        jobs.append(Job.model_validate_json(path.read_bytes()))
    (tmp_path / "jobs.json").write_text(Trials(jobs=jobs).model_dump_json())
    ended = train(tmp_path / "jobs.json", TRIAL_WORKER)
    assert (ended.code, ended.result()["trials"]) == (0, 4)
    for number in (1, 2):
        why = json.loads((tmp_path / f"wild-{number}" / "out" / DIVERGED).read_bytes())["reason"]
        assert why.startswith("step 1: the gradient norm is inf")
    alone = tmp_path / "alone"
    assert train(job_in(alone, calm, probe_every=2)).code == 0
    for number in (1, 2):
        out = tmp_path / f"calm-{number}" / "out"
        assert (out / "probes.jsonl").read_bytes() == (alone / "out" / "probes.jsonl").read_bytes()
        assert not (out / DIVERGED).exists()
        assert not (out / "adapter").exists()
    points = [json.loads(line)["step"] for line in (alone / "out" / "probes.jsonl").read_text().splitlines()]
    assert points == [0, 2, 3]


def dry_context(project: Path, samples: Path, model: Path, small: str, trials: TrialParameters) -> StageContext:
    (project / "data" / "artifacts").mkdir(parents=True)
    shutil.copyfile(samples, project / "data" / "artifacts" / "samples.parquet")
    training = small_training(max_steps=None, epochs=1, lr=1e-3, lr_warmup_steps=0)
    parameters = DryRunParameters(model=small, steps=6, training=training, trials=trials)
    values = parameters.model_dump(mode="json")
    return stage_context("dry_run", project, model, values, {"data": project / "data"})


def report_of(context: StageContext) -> TrialsReport:
    return TrialsReport.model_validate_json((context.artifacts / "trials.json").read_bytes())


def faulty(context: StageContext) -> tuple[float | None, str]:
    found = verify_dry_run.metrics(context.out_dir, context.inputs, context.model_dump(mode="json"))["trials_faulty"]
    return found.value, found.reason


@pytest.fixture(scope="module")
def whole(tmp_path_factory, samples_file, tiny_model) -> StageContext:
    """A finished dry run on another model than the base model (the same bytes by another name)."""
    vary: list[TrialDimension] = ["rank", "lr", "length"]
    trials = TrialParameters(vary=vary, steps=6, repeats=3, confirm_steps=6, target_lr=1e-3)
    project = tmp_path_factory.mktemp("whole")
    context = dry_context(project, samples_file, tiny_model, "package:gatewright-tiny", trials)
    assert any("small trials" in note for note in run_stage(context)["notes"])
    return context


@pytest.mark.slow
def test_a_learning_rate_that_is_too_low_is_found_and_confirmed_on_the_base_model(whole):
    found = report_of(whole)
    assert {o.name for o in found.outcomes} == {"rank-down", "rank-up", "lr-down", "lr-up", "length-down"}
    assert "lr-up" in {o.name for o in found.proposed}
    assert found.confirmation is not None
    assert found.confirmation.status == "confirmed"
    assert faulty(whole) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("trials.json", lambda d: {**d, "outcomes": d["outcomes"][1:]}, "rank-down is not what was asked for"),
        ("trials.json", lambda d: {**d, "seeds": d["seeds"][1:]}, "2 seeds instead of 3"),
        (
            "trials/lr-up-17/settings.json",
            lambda d: {**d, "requested": {**d["requested"], "optimizer": "sgd"}},
            "optim",
        ),
        ("trials/base-18/settings.json", lambda d: {**d, "requested": {**d["requested"], "max_length": 9}}, "approved"),
        ("confirm/trials/changed-17/settings.json", lambda d: {**d, "requested": {}}, "confirmation with seed 17"),
    ],
)
def test_the_verifier_finds_trials_that_are_no_pairs_or_say_something_else(whole, name, change, said, tmp_path):
    shutil.copytree(whole.out_dir, tmp_path / "001")
    path = tmp_path / "001" / "artifacts" / name
    path.write_text(json.dumps(change(json.loads(path.read_bytes()))))
    value, reason = faulty(whole.model_copy(update={"out_dir": tmp_path / "001"}))
    assert value
    assert said in reason


@pytest.mark.slow
@pytest.mark.parametrize("field", ["change", "trend"])
def test_the_verifier_recomputes_every_change_and_trend(whole, field, tmp_path):
    shutil.copytree(whole.out_dir, tmp_path / "001")
    path = tmp_path / "001" / "artifacts" / "trials.json"
    document = json.loads(path.read_bytes())
    for outcome in document["outcomes"]:
        outcome[field] = outcome["change"] - 1e-6 if field == "change" else "diverged"
    path.write_text(json.dumps(document))
    value, reason = faulty(whole.model_copy(update={"out_dir": tmp_path / "001"}))
    assert value == 5
    assert "its change is" in reason or "said to have diverged" in reason


@pytest.mark.slow
def test_a_dry_run_killed_among_its_trials_goes_on_with_the_next_one_and_ends_the_same(whole, tmp_path, samples_file):
    assert whole.base_model is not None
    trials = TrialParameters.model_validate(whole.parameters["trials"])
    context = dry_context(tmp_path, samples_file, whole.base_model, "package:gatewright-tiny", trials)
    running = RunningStage(context)
    while "trial 5 of" not in (running.said.read_text() if running.said.exists() else ""):
        assert running.process.is_alive()
        time.sleep(0.05)
    running.kill()
    done = sorted((context.checkpoints_dir / "trials").rglob("result.json"))
    before = {path: path.stat().st_mtime_ns for path in done}
    assert len(before) >= 4
    run_stage(context)
    assert {path: path.stat().st_mtime_ns for path in done} == before
    assert report_of(context) == report_of(whole)


@pytest.mark.slow
def test_a_base_model_that_cannot_be_tried_leaves_the_trend_unconfirmed_with_the_reason(whole, tmp_path):
    """The memory that it may have is too little to load it."""
    training = TrainingConfiguration.model_validate(whole.parameters["training"])
    samples = whole.inputs["data"] / "artifacts" / "samples.parquet"
    small = json.loads((whole.checkpoints_dir / "trials" / "small" / "jobs.json").read_bytes())["jobs"][0]
    assert whole.base_model is not None
    values = (whole.base_model, small["base_model_sha256"], "small", training_pool(samples, training))
    held_out = small["probe_sample_ids"]
    one = Material(*values, held_out, "held-out", samples, small["samples_sha256"])
    other = Material(*values, held_out, "held-out", samples, small["samples_sha256"], memory_limit_bytes=2**28)
    parameters = TrialParameters.model_validate(whole.parameters["trials"])

    shutil.copytree(whole.checkpoints_dir / "trials" / "small", tmp_path / "work" / "small")
    place = Place(tmp_path / "work", tmp_path / "artifacts", tmp_path / "log")
    found = make_trials(training.model_copy(update={"max_steps": 6}), parameters, one, other, place, Quiet())
    assert found.confirmation is not None
    assert found.confirmation.status == "not run"
    assert found.confirmation.cause is not None
    assert "memory" in str(found.confirmation.cause.values["message"])
