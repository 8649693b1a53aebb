"""The stages `dry_run` and `train` on a real small model, through real workers, judged by their default criteria."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from specs.criteria import judge
from specs.errors import GuardRefused, InputError
from specs.metrics import default_criteria, definitions
from specs.parameters import DryRunParameters, TrainingConfiguration, fingerprint
from specs.project import Launcher
from specs.stages import Quiet, StageContext
from specs.trials import TrialParameters
from tasks.data.batch_plan import plan_batches, write_plan
from tasks.memory.devices import this_device
from tasks.models.folder import digest_model
from tasks.stress.environment import environment_of
from tasks.training import stage as train_stage
from tasks.verify import dry_run as verify_dry_run
from tasks.verify import train as verify_train
from tasks.worker_ends import WorkerDied
from tests.support.forked_stage import run_stage
from tests.support.samples import small_training, training_samples
from tests.support.stages import stage_context

pytestmark = pytest.mark.skipif(os.name == "nt", reason="training on Windows is by WSL2")


class Watcher(Quiet):
    """Does something when the worker has advanced so far."""

    def __init__(self, after: int, action: Callable[[], None]) -> None:
        self.left = after
        self.action = action

    def advance(self, units: int = 1, note: str = "") -> None:
        self.left -= 1 if "loss" in note else 0
        if self.left == 0:
            self.action()
            self.left = -1


def plain(context: StageContext) -> dict[str, Any]:
    return context.model_dump(mode="json")


def data_folder(project: Path, samples_file: Path) -> Path:
    folder = project / "data" / "001"
    (folder / "artifacts").mkdir(parents=True)
    shutil.copyfile(samples_file, folder / "artifacts" / "samples.parquet")
    return folder


def stress_folder(project: Path, samples_file: Path, model: Path, training: TrainingConfiguration) -> Path:
    """What `train` reads of a stress test: the plan, the settings it measured, and the peak."""
    from specs.canonical import sha256_file

    folder = project / "stress_test" / "001"
    write_plan(
        plan_batches(training_samples(samples_file), training),
        folder / "artifacts" / "batch_plan.parquet",
    )
    found = fingerprint(training, digest_model(model), sha256_file(samples_file))
    (folder / "artifacts" / "settings.json").write_text(json.dumps({"fingerprint": found}))
    (folder / "artifacts" / "measurement.json").write_text(json.dumps({"peak_bytes": 10**12}))
    measured_on = {"environment": environment_of(this_device(), training)}
    (folder / "artifacts" / "device.json").write_text(json.dumps(measured_on))
    return folder


@pytest.fixture
def train_context(tmp_path, samples_file, tiny_model) -> Callable[..., StageContext]:
    training = small_training(threads=1)
    inputs = {
        "data": data_folder(tmp_path, samples_file),
        "stress_test": stress_folder(tmp_path, samples_file, tiny_model, training),
    }

    def make(**changes) -> StageContext:
        parameters = {"training": training.model_copy(update=changes).model_dump(mode="json")}
        return stage_context("train", tmp_path, tiny_model, parameters, inputs)

    return make


def test_training_stopped_and_begun_again_elsewhere_ends_with_the_same_bytes(train_context, uninterrupted):
    context = train_context()
    assert run_stage(context, stop_after=3)["class"] == "Stopped"
    shutil.rmtree(context.out_dir)  # a restarted attempt begins with an empty folder; the checkpoints stay
    again = train_context()
    notes = run_stage(again)["notes"]
    artifacts = again.artifacts
    for name in ("adapter/adapter_model.safetensors", "micro_batches.jsonl"):
        assert (artifacts / name).read_bytes() == (uninterrupted / name).read_bytes()
    assert any("went on from step" in note for note in notes)
    settings = json.loads((artifacts / "settings.json").read_text())
    stress = again.inputs["stress_test"] / "artifacts"
    (stress / "settings.json").write_text(json.dumps(settings))
    found = verify_train.metrics(again.out_dir, again.inputs, plain(again))
    assert found.keys() == {d.name for d in definitions("train")}
    failed = [v for v in judge(default_criteria("train"), found) if v.blocking and not v.passed]
    assert failed == []
    assert found["resumes"].value == 1
    assert found["steps_taken"].value == 8


def test_a_limit_of_memory_in_the_spec_reaches_the_worker(train_context):
    context = train_context()
    assert train_stage.make_job(context).memory_limit_bytes is None
    limited = context.spec.model_copy(update={"launcher": Launcher(memory_gb=2)})
    assert train_stage.make_job(context.model_copy(update={"spec": limited})).memory_limit_bytes == 2 * 2**30


def test_a_training_is_refused_where_it_was_not_measured(train_context):
    context = train_context()
    path = context.inputs["stress_test"] / "artifacts" / "device.json"
    measured = json.loads(path.read_bytes())
    measured["environment"]["device"] = "cuda: H200"
    path.write_text(json.dumps(measured))
    with pytest.raises(GuardRefused, match="measured this configuration on something else") as caught:
        train_stage.run(context, Quiet())
    assert "cuda: H200" in caught.value.message
    assert not list(context.checkpoints_dir.parent.rglob("*.jsonl"))


def kill_worker() -> None:
    """As the system does when memory runs out."""
    for child in psutil.Process().children():
        if "tasks.training.worker" in child.cmdline():
            child.kill()


@pytest.mark.slow
def test_an_attempt_whose_worker_was_killed_is_gone_on_with_by_the_next_one(train_context, uninterrupted):
    first = train_context()
    with pytest.raises(WorkerDied):
        train_stage.run(first, Watcher(3, kill_worker))
    second = first.model_copy(
        update={
            "attempt": 2,
            "out_dir": first.out_dir.with_name("002.partial"),
            "checkpoints_dir": first.checkpoints_dir.with_name("train-002"),
        }
    )
    second.checkpoints_dir.mkdir()
    result = train_stage.run(second, Quiet())
    assert "went on with the checkpoints of attempt 1" in result.notes
    assert not first.checkpoints_dir.exists()
    name = "adapter/adapter_model.safetensors"
    assert (second.artifacts / name).read_bytes() == (uninterrupted / name).read_bytes()
    sessions = [json.loads(line) for line in (second.artifacts / "sessions.jsonl").read_text().splitlines()]
    assert sessions[1]["from_step"] >= 2


@pytest.mark.parametrize("other", ["same", "lr", "finished", "unreadable"])
def test_the_next_attempt_takes_over_unfinished_checkpoints_of_the_same_job_and_no_others(other, train_context):
    context = train_context()
    job = train_stage.make_job(context)
    earlier = context.checkpoints_dir / "worker"
    earlier.mkdir(parents=True)
    changed = job.training.model_copy(update={"lr": 1e-5} if other == "lr" else {})
    (earlier / "job.json").write_text(job.model_copy(update={"training": changed}).model_dump_json())
    if other == "finished":
        (earlier / "result.json").write_text("{}")
    if other == "unreadable":
        (earlier / "job.json").write_text("{")
    (earlier.parent / "00000002").mkdir()
    folder = context.checkpoints_dir.with_name("train-002")
    second = context.model_copy(update={"attempt": 2, "checkpoints_dir": folder})
    notes = train_stage.take_over(second, job)
    taken = other == "same"
    said = [] if other == "finished" else ["trained from the beginning: the checkpoints of attempt 1 are of other"]
    said = ["went on with the checkpoints of attempt 1"] if taken else said
    assert [note.startswith(words) for note, words in zip(notes, said, strict=True)] == [True] * len(said)
    assert earlier.is_dir() != taken
    assert (folder / "worker" / "job.json").is_file() == taken


def test_another_configuration_than_the_measured_is_refused(train_context):
    with pytest.raises(GuardRefused, match="not the one that passed the stress test"):
        train_stage.run(train_context(lr=1e-3), Quiet())


def test_a_missing_plan_is_said(train_context):
    context = train_context()
    (context.inputs["stress_test"] / "artifacts" / "batch_plan.parquet").unlink()
    with pytest.raises(InputError, match=r"train needs batch_plan\.parquet of stress_test"):
        train_stage.run(context, Quiet())


@pytest.fixture(scope="module")
def dry(tmp_path_factory, samples_file, tiny_model) -> StageContext:
    """A finished dry run in Chinese."""
    project = tmp_path_factory.mktemp("dry")
    lengths = sorted(n for _, n in training_samples(samples_file))
    limit = lengths[len(lengths) * 4 // 5] - 1  # some samples are longer
    training = small_training(max_steps=None, epochs=1, max_length=limit, lr=5e-3)
    trials = TrialParameters(vary=["lr"], steps=4, repeats=2)
    parameters = DryRunParameters(model="tiny", steps=10, training=training, trials=trials)
    inputs = {"data": data_folder(project, samples_file)}
    values = parameters.model_dump(mode="json")
    context = stage_context("dry_run", project, tiny_model, values, inputs, language="zh")
    notes = run_stage(context)["notes"]
    assert any("未用于试运行" in note for note in notes)
    assert any("轮数由 1 增至 2" in note for note in notes)
    assert any("小规模试验：2 种设置 × 2 个种子 × 4 步" in note for note in notes)
    return context


def test_the_dry_run_passes_its_own_criteria_on_a_model_that_learns(dry):
    found = verify_dry_run.metrics(dry.out_dir, dry.inputs, plain(dry))
    assert found.keys() == {d.name for d in definitions("dry_run")}
    unlearnt = {"ended_share", "loss_trend_certainty"}  # ten steps teach this model no end: warnings
    assert {v.metric for v in judge(default_criteria("dry_run"), found) if not v.passed} <= unlearnt
    assert not any(d.blocking for d in definitions("dry_run") if d.name in unlearnt)
    assert found["regrouping_difference"].value is not None
    assert found["masked_token_effect"].value == 0
    sessions = [json.loads(x) for x in (dry.artifacts / "resumed" / "sessions.jsonl").read_text().splitlines()]
    assert [s["from_step"] for s in sessions] == [0, 6, 7]  # killed after 8, so step 8 was trained again


PLANTED: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any] | None]]] = {
    "steps_missing": ("metrics.jsonl", lambda r: None if r["step"] == 4 else r),
    "nonfinite_steps": ("metrics.jsonl", lambda r: {**r, "loss": None} if r["step"] == 4 else r),
    "loss_trend": ("metrics.jsonl", lambda r: {**r, "loss": 1.0 + r["step"]}),
    "memory_growth": ("metrics.jsonl", lambda r: {**r, "held_bytes": 10**9 * (1 + r["step"])}),
    "order_mismatches": ("micro_batches.jsonl", lambda r: {**r, "sample_ids": r["sample_ids"][::-1]}),
    "masked_end_tokens": ("fed.jsonl", lambda r: {**r, "last_label": -100}),
    "regrouping_difference": ("checks.json", lambda r: {**r, "loss_split": r["loss_split"] * (1 + 1e-5)}),
    "masked_token_effect": ("checks.json", lambda r: {**r, "loss_padding_changed": r["loss_whole"] * (1 + 1e-15)}),
    "ended_share": ("generated.jsonl", lambda r: {**r, "ended": False}),
    "loss_trend_certainty": ("metrics.jsonl", lambda r: {**r, "loss": 1.0 + r["step"]}),
    "trials_faulty": ("trials/lr-up-18/micro_batches.jsonl", lambda r: {**r, "sample_ids": r["sample_ids"][::-1]}),
    "resume_loss_difference": ("resumed/metrics.jsonl", lambda r: {**r, "loss": r["loss"] + 1e-7}),
}


@pytest.mark.parametrize("metric", PLANTED)
def test_the_verifier_finds_what_is_planted(metric, dry, tmp_path):
    attempt = tmp_path / "001"
    shutil.copytree(dry.out_dir, attempt)
    name, change = PLANTED[metric]
    path = attempt / "artifacts" / name
    records = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(r) + "\n" for r in records if r is not None))
    found = verify_dry_run.metrics(attempt, dry.inputs, plain(dry))
    verdicts = {v.metric: v.passed for v in judge(default_criteria("dry_run"), found)}
    assert not verdicts[metric]


def test_the_verifier_finds_one_changed_bit_of_the_resumed_adapter(dry, tmp_path):
    attempt = tmp_path / "001"
    shutil.copytree(dry.out_dir, attempt)
    path = attempt / "artifacts" / "resumed" / "adapter" / "adapter_model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    assert verify_dry_run.metrics(attempt, dry.inputs, plain(dry))["resume_weight_difference"].value == 1


def test_an_adapter_that_learnt_nothing_is_seen(dry, tmp_path):
    import safetensors.numpy

    from tasks.verify.tensors import adapter_norm

    path = dry.artifacts / "adapter" / "adapter_model.safetensors"
    assert adapter_norm(path.parent) > 0
    tensors = safetensors.numpy.load_file(path)
    untouched = {name: value * (0 if "lora_B" in name else 1) for name, value in tensors.items()}
    safetensors.numpy.save_file(untouched, tmp_path / "adapter_model.safetensors")
    assert adapter_norm(tmp_path) == 0


def test_missing_artifacts_are_null_with_a_reason_not_a_pass(dry, tmp_path):
    found = verify_dry_run.metrics(tmp_path, dry.inputs, plain(dry))
    for verdict in judge(default_criteria("dry_run"), found):
        assert not verdict.passed
        assert verdict.reason
