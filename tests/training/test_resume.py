"""A training that was killed, stopped or cut off ends as if nothing had happened, or says why it cannot."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from specs.canonical import sha256_file
from specs.parameters import LoraParameters
from tasks.training.changes import CONFIRMED, DIFFERENCES, read_rows, write_rows
from tasks.training.job import Job
from tasks.training.launch import session_notes
from tests.support.forked import ForkedWorker, train
from tests.support.samples import small_training

FAULTY = "tests.training.faulty_workers"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="training on Windows is by WSL2")


def curve(out: Path) -> list[tuple[int, str, str, str]]:
    """Step, loss, gradient norm and learning rate of every step, to the last bit."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [(r["step"], r["loss"].hex(), r["grad_norm"].hex(), r["lr"].hex()) for r in lines]


def same_training(one: Path, other: Path) -> None:
    """Losses, order and weights are equal bit for bit."""
    assert curve(one) == curve(other)
    assert (one / "micro_batches.jsonl").read_bytes() == (other / "micro_batches.jsonl").read_bytes()
    assert (one / "census.jsonl").read_bytes() == (other / "census.jsonl").read_bytes()
    assert (one / "fed.jsonl").read_bytes() == (other / "fed.jsonl").read_bytes()
    assert (one / "probe.json").read_bytes() == (other / "probe.json").read_bytes()
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert (one / "adapter" / name).read_bytes() == (other / "adapter" / name).read_bytes()


def sessions(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "sessions.jsonl").read_text().splitlines()]


def fault(job: Path, kind: str, step: int = 0) -> None:
    job.with_name("fault.json").write_text(json.dumps({"kind": kind, "step": step}))


def rewrite(job: Path, **changes) -> None:
    found = Job.model_validate_json(job.read_bytes())
    job.write_text(found.model_copy(update=changes).model_dump_json())


def slow(*values):
    """A parameter for the long suite."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize("step", [slow(1), slow(2), slow(3), slow(4), slow(6), 7])
def test_killed_after_a_step_ends_with_the_same_bytes(step, job_in: Callable[..., Path], uninterrupted, tmp_path):
    job = job_in(tmp_path, kill_after_step=step)
    assert train(job).code == -signal.SIGKILL
    rewrite(job, kill_after_step=None)
    ended = train(job)
    assert ended.code == 0
    assert ended.result()["resumed_from"] == step // 2 * 2
    same_training(uninterrupted, tmp_path / "out")
    proofs = [json.loads(line) for line in (tmp_path / "out" / "continuity.jsonl").read_text().splitlines()]
    pinned = {"pinned batch": 0} if step >= 2 else {}  # saved at every second step
    again = {"steps trained again": 1} if step % 2 else {}
    assert {p["proof"]: p["steps"] for p in proofs} == pinned | again
    assert {p["largest_difference"] for p in proofs} == {0.0}


@pytest.mark.slow
def test_killed_between_two_micro_batches_ends_with_the_same_bytes(job_in, uninterrupted, tmp_path):
    job = job_in(tmp_path)
    fault(job, "kill_in_step", 6)
    assert train(job, FAULTY).code == -signal.SIGKILL
    assert train(job).code == 0
    same_training(uninterrupted, tmp_path / "out")


def test_killed_inside_a_save_goes_on_from_the_one_before_and_names_the_unfinished(job_in, uninterrupted, tmp_path):
    job = job_in(tmp_path)
    fault(job, "kill_in_save", 4)
    assert train(job, FAULTY).code == -signal.SIGKILL
    assert train(job).result()["resumed_from"] == 2
    same_training(uninterrupted, tmp_path / "out")
    passed = sessions(tmp_path / "out")[1]["passed_over"]
    assert [p["name"] for p in passed] == ["00000004.s1.partial"]
    assert (tmp_path / "checkpoints" / "00000004.s1.partial").is_dir()


def test_killed_twice_ends_with_the_same_bytes(job_in, uninterrupted, tmp_path):
    job = job_in(tmp_path, kill_after_step=3)
    train(job)
    rewrite(job, kill_after_step=5)
    assert train(job).code == -signal.SIGKILL
    rewrite(job, kill_after_step=None)
    assert train(job).result()["resumed_from"] == 4
    same_training(uninterrupted, tmp_path / "out")
    assert [s["from_step"] for s in sessions(tmp_path / "out")] == [0, 2, 4]


def test_sigterm_saves_says_so_and_exits_130(job_in, uninterrupted, tmp_path):
    job = job_in(tmp_path, training=small_training(save_steps=100))
    worker = ForkedWorker(job)
    wait_for(lambda: sum("loss" in said["note"] for said in worker.heard("advance")) > 2)
    worker.send_signal(signal.SIGTERM)
    worker.send_signal(signal.SIGTERM)  # a second one cuts nothing
    ended = worker.wait()
    assert ended.code == 130
    assert ended.error()["class"] == "Stopped"
    step = len(curve(tmp_path / "out"))
    assert f"after step {step} of 8" in ended.error()["message"]
    assert (tmp_path / "checkpoints" / f"{step:08d}" / "manifest.json").is_file()
    assert train(job).result()["resumed_from"] == step
    same_training(uninterrupted, tmp_path / "out")


def test_a_stop_in_the_middle_of_a_step_gives_the_step_up_and_trains_it_again(job_in, uninterrupted, tmp_path):
    job = job_in(tmp_path)
    fault(job, "stop_in_step", 6)
    ended = train(job, FAULTY)
    assert ended.code == 130
    assert "after step 5 of 8 (step 6 had begun" in ended.error()["message"]
    assert "checkpoint 00000005" in ended.error()["message"]
    fed = [json.loads(line)["step"] for line in (tmp_path / "out" / "micro_batches.jsonl").read_text().splitlines()]
    assert max(fed) == 5
    rewrite(job)
    fault(job, "none")
    assert train(job).result()["resumed_from"] == 5
    same_training(uninterrupted, tmp_path / "out")


def test_other_weights_than_those_saved_do_not_continue_the_training(killed, tmp_path):
    job = killed(tmp_path)
    fault(job, "other_weights")
    ended = train(job, FAULTY)
    assert (ended.code, ended.error()["class"]) == (6, "ResumeRefused")
    assert "the loss of its pinned batch was" in ended.error()["message"]


def test_stopped_before_the_first_step_loses_nothing(job_in, tmp_path):
    worker = ForkedWorker(job_in(tmp_path))
    wait_for(lambda: worker.heard("start"))
    worker.send_signal(signal.SIGTERM)
    ended = worker.wait()
    assert ended.code == 130
    assert ended.error()["class"] == "Stopped"


def test_ends_at_stop_after_step_and_finishes_later(job_in, uninterrupted, tmp_path):
    job = job_in(tmp_path, stop_after_step=3)
    result = train(job).result()
    assert (result["steps"], result["finished"]) == (3, False)
    assert not (tmp_path / "out" / "adapter").exists()
    rewrite(job, stop_after_step=None)
    assert train(job).result()["finished"]
    same_training(uninterrupted, tmp_path / "out")


def test_a_finished_training_is_finished_again_without_a_step(job_in, uninterrupted, tmp_path):
    job = job_in(tmp_path)
    train(job)
    shutil.rmtree(tmp_path / "out" / "adapter")
    assert train(job).result()["resumed_from"] == 8
    same_training(uninterrupted, tmp_path / "out")


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "full", "lr": 5e-4},
        slow({"method": "dora"}),
        slow({"optimizer": "adafactor"}),
        slow({"optimizer": "sgd", "lr": 0.05}),
        slow({"activation_checkpointing": True, "weights": "bf16", "compute": "bf16", "lr_schedule": "linear"}),
        slow({"compute": "amp-bf16", "optimizer": "adamw_fused", "weight_decay": 0.1}),
        slow({"method": "qlora", "weights": "nf4-dq"}),
        slow({"optimizer": "adamw_8bit"}),
        slow({"optimizer": "paged_adamw_8bit"}),
    ],
    ids=lambda changes: "-".join(str(v) for v in changes.values()),
)
def test_every_method_and_optimizer_resumes_exactly(changes, job_in, tmp_path):
    training = small_training(max_steps=4, save_steps=2, **changes)
    straight, killed = job_in(tmp_path / "a", training), job_in(tmp_path / "b", training, kill_after_step=3)
    assert train(straight).code == 0
    assert train(killed).code == -signal.SIGKILL
    rewrite(killed, kill_after_step=None)
    assert train(killed).result()["resumed_from"] == 2
    one, other = tmp_path / "a" / "out", tmp_path / "b" / "out"
    assert curve(one) == curve(other)
    kind = "model" if changes.get("method") == "full" else "adapter"
    names = sorted(p.name for p in (one / kind).iterdir())
    assert any(name.endswith(".safetensors") for name in names)
    assert all((one / kind / n).read_bytes() == (other / kind / n).read_bytes() for n in names)


# -- what cannot be resumed exactly is refused


@pytest.mark.parametrize("name", ["optimizer.pt", slow("scheduler.pt"), "random.json", slow("random.safetensors")])
def test_a_checkpoint_without_its_state_is_passed_over_for_the_one_before(name, killed, uninterrupted, tmp_path):
    job = killed(tmp_path)
    (tmp_path / "checkpoints" / "00000004" / name).unlink()
    assert train(job).result()["resumed_from"] == 2
    [passed] = sessions(tmp_path / "out")[1]["passed_over"]
    assert (passed["name"], passed["reason"]) == ("00000004", f"{name} is missing")
    same_training(uninterrupted, tmp_path / "out")


def test_damaged_checkpoints_only_are_refused_not_started_anew(killed, tmp_path):
    job = killed(tmp_path)
    for step in (2, 4):
        path = tmp_path / "checkpoints" / f"{step:08d}" / "adapter_model.safetensors"
        path.write_bytes(path.read_bytes()[:-1] + b"\x07")
    ended = train(job)
    assert ended.code == 6
    assert "adapter_model.safetensors is not what was written" in ended.error()["message"]


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("training.micro_batch", {"micro_batch": 3, "gradient_accumulation": 2}),
        ("training.threads", {"threads": 2}),
        slow("training.lr", {"lr": 1e-3}),
        slow("training.lora.rank", {"lora": LoraParameters(rank=8, alpha=8, dropout=0.05)}),
    ],
)
def test_other_settings_on_resume_are_refused_with_what_was_and_is(name, changed, killed, tmp_path):
    ended = train(killed(tmp_path, training=small_training(**changed)))
    assert ended.code == 6
    assert ended.error()["class"] == "ResumeRefused"
    assert name in ended.error()["message"]
    assert "was" in ended.error()["message"]


def written_elsewhere(checkpoint: Path) -> None:
    """A checkpoint of another version of NumPy, whole in everything else."""
    state = json.loads((checkpoint / "state.json").read_bytes())
    state["settings"]["versions.numpy"] = "1.0.0"
    (checkpoint / "state.json").write_text(json.dumps(state))
    manifest = json.loads((checkpoint / "manifest.json").read_bytes())
    files = [[n, (checkpoint / n).stat().st_size, sha256_file(checkpoint / n)] for n, _, _ in manifest["files"]]
    (checkpoint / "manifest.json").write_text(json.dumps({**manifest, "files": files}))


def test_other_libraries_are_refused_with_a_table_until_a_person_confirms_just_that(killed, uninterrupted, tmp_path):
    job, out = killed(tmp_path), tmp_path / "out"
    written_elsewhere(tmp_path / "checkpoints" / "00000004")
    refused = train(job).error()
    assert refused["class"] == "ResumeRefused"
    assert re.search(r"versions\.numpy +1\.0\.0 +2", refused["message"])
    [row] = read_rows(out / DIFFERENCES)
    write_rows(out / CONFIRMED, [row.model_copy(update={"now": "9.9"})])
    assert train(job).error()["class"] == "ResumeRefused"  # another version than the one that was confirmed
    write_rows(out / CONFIRMED, [row])
    fault(job, "other_weights")
    assert "its pinned batch" in train(job, FAULTY).error()["message"]  # what is proven is proven all the same
    assert train(job).result()["finished"]
    same_training(uninterrupted, out)
    assert sessions(out)[-1]["confirmed"] == [row.model_dump()]
    assert not (out / DIFFERENCES).exists()
    for language, word in (("en", "as a person confirmed: versions.numpy: 1.0.0 -> "), ("zh", "经人确认")):
        assert any(word in note for note in session_notes(sessions(out), language))


def test_another_save_interval_may_be_asked_for_on_resume(killed, uninterrupted, tmp_path):
    ended = train(killed(tmp_path, training=small_training(save_steps=5, keep_checkpoints=1)))
    assert ended.result()["resumed_from"] == 4
    same_training(uninterrupted, tmp_path / "out")


def test_a_log_that_was_shortened_is_refused(killed, tmp_path):
    job = killed(tmp_path)
    (tmp_path / "out" / "metrics.jsonl").write_text("")
    ended = train(job)
    assert ended.code == 1
    assert "the checkpoint was written when it had" in ended.error()["message"]


def test_a_base_model_that_changed_is_refused(job_in, tiny_model, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    job = job_in(tmp_path / "run", base_model=model)
    weights = next(model.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    ended = train(job)
    assert (ended.code, ended.error()["class"]) == (2, "ModelError")


def test_two_workers_never_write_the_same_training(job_in, tmp_path):
    from tasks.training.checkpoints import CheckpointStore

    store = CheckpointStore(tmp_path / "checkpoints", 2)
    with store.locked():
        worker = ForkedWorker(job_in(tmp_path))
        time.sleep(1)
        assert not worker.heard("start")
    assert worker.wait().code == 0


# -- the same tests would notice a toy


def test_without_restored_random_numbers_the_training_notices_that_it_leaves_its_curve(killed, tmp_path):
    job = killed(tmp_path)
    fault(job, "no_random")
    ended = train(job, FAULTY)
    assert (ended.code, ended.error()["class"]) == (6, "ResumeRefused")
    assert "does not continue the curve: step 5 had a loss of" in ended.error()["message"]


@pytest.mark.slow
def test_where_nothing_was_trained_after_the_save_the_comparison_with_the_whole_notices(
    killed, uninterrupted, tmp_path
):
    job = killed(tmp_path)
    for name in ("metrics.jsonl", "micro_batches.jsonl", "fed.jsonl", "census.jsonl"):
        path = tmp_path / "out" / name
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        path.write_text("".join(line for line in lines if json.loads(line)["step"] <= 4))
    fault(job, "no_random")
    assert train(job, FAULTY).code == 0
    with pytest.raises(AssertionError):
        same_training(uninterrupted, tmp_path / "out")


def test_without_the_atomic_rename_a_trusting_store_cannot_resume(job_in, uninterrupted, tmp_path):
    job = job_in(tmp_path)
    fault(job, "no_rename", 4)
    assert train(job, FAULTY).code == -signal.SIGKILL
    untouched = tmp_path / "checkpoints-before"
    shutil.copytree(tmp_path / "checkpoints", untouched)
    fault(job, "trusting")
    assert train(job, FAULTY).code != 0
    shutil.rmtree(tmp_path / "checkpoints")
    untouched.rename(tmp_path / "checkpoints")
    assert train(job).result()["resumed_from"] == 2  # ours looks before it trusts
    same_training(uninterrupted, tmp_path / "out")


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    """Until it holds; a limit, not a measurement."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.005)
