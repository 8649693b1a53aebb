"""A step that is not finite never reaches the optimizer; a full disk never costs a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from specs.errors import StorageError
from tasks.storage import library_storage_errors
from tasks.training.job import Job
from tests.support.forked import train

FAULTY = "tests.training.faulty_workers"


def fault(job: Path, kind: str, step: int = 0) -> None:
    job.with_name("fault.json").write_text(json.dumps({"kind": kind, "step": step}))


def test_a_loss_that_is_not_a_number_stops_before_the_optimizer_moves(job_in, tmp_path):
    job = job_in(tmp_path)
    fault(job, "nan", 4)
    ended = train(job, FAULTY)
    assert ended.code == 1
    error = ended.error()
    assert error["class"] == "NotFinite"
    assert "step 4: the loss is nan" in error["message"]
    lines = [json.loads(line) for line in (tmp_path / "out" / "micro_batches.jsonl").read_text().splitlines()]
    assert all(i in error["message"] for line in lines if line["step"] == 4 for i in line["sample_ids"])
    assert "last good checkpoint is 00000002" in error["message"]
    assert (tmp_path / "before.txt").read_text() == (tmp_path / "after.txt").read_text()
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir() if p.is_dir()) == ["00000002"]
    assert len((tmp_path / "out" / "metrics.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        pytest.param("inf", "the loss is inf", marks=pytest.mark.slow),
        pytest.param("zero", "the loss is exactly zero", marks=pytest.mark.slow),
        ("inf_gradient", "the gradient norm is inf"),
    ],
)
def test_a_step_that_is_not_finite_or_learns_nothing_stops_and_keeps_the_last_good_save(kind, words, job_in, tmp_path):
    job = job_in(tmp_path)
    fault(job, kind, 3)
    error = train(job, FAULTY).error()
    assert error["class"] == "NotFinite"
    assert f"step 3: {words}" in error["message"]
    assert "last good checkpoint is 00000002" in error["message"]


def test_a_step_that_loss_scaling_skips_is_recorded_and_the_scale_survives_a_kill(job_in, tmp_path):
    straight, killed = job_in(tmp_path / "a"), job_in(tmp_path / "b", kill_after_step=5)
    for job in (straight, killed):
        fault(job, "scaler_inf", 3)
        train(job, FAULTY)
    rewritten = Job.model_validate_json(killed.read_bytes()).model_copy(update={"kill_after_step": None})
    killed.write_text(rewritten.model_dump_json())
    assert train(killed, FAULTY).result()["resumed_from"] == 4
    one, other = tmp_path / "a", tmp_path / "b"
    lines = [json.loads(line) for line in (one / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line.get("skipped")] == [3]
    assert lines[2]["grad_norm"] is None
    for name in ("out/adapter/adapter_model.safetensors", "checkpoints/00000008/scaler.pt"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    scaler = torch.load(one / "checkpoints" / "00000008" / "scaler.pt")
    assert scaler["scale"] == 512.0  # halved once


def test_a_full_disk_is_said_before_the_first_step(job_in, tmp_path):
    job = job_in(tmp_path)
    fault(job, "disk_full")
    ended = train(job, FAULTY)
    assert (ended.code, ended.error()["class"]) == (1, "StorageError")
    assert "no space for 3 checkpoints" in ended.error()["message"]
    assert not (tmp_path / "out" / "metrics.jsonl").exists() or not (tmp_path / "out" / "metrics.jsonl").read_text()


@pytest.mark.parametrize("full_at", ["optimizer.pt", pytest.param("adapter", marks=pytest.mark.slow)])
def test_a_disk_that_fills_up_in_a_save_is_said_and_costs_no_checkpoint(full_at, killed, uninterrupted, tmp_path):
    """torch and safetensors tell it in words of their own, and neither as an `OSError`."""
    job = killed(tmp_path)
    adapter = (tmp_path / "checkpoints" / "00000004" / "adapter_model.safetensors").stat().st_size
    room = adapter + 1000 if full_at == "optimizer.pt" else adapter - 1000
    job.with_name("fault.json").write_text(json.dumps({"kind": "full", "step": 6, "bytes": room}))
    ended = train(job, FAULTY)
    assert (ended.code, ended.error()["class"]) == (1, "StorageError")
    assert "no space left while writing" in ended.error()["message"]
    assert "00000006.s2.partial" in ended.error()["message"]
    assert "gatewright resume" in ended.error()["hint"]
    job.with_name("fault.json").unlink()
    assert train(job).result()["resumed_from"] == 4
    name = "adapter/adapter_model.safetensors"
    assert (tmp_path / "out" / name).read_bytes() == (uninterrupted / name).read_bytes()


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"), True),
        (RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"), True),
        (ValueError("Error while serializing: I/O error: No space left on device (os error 28)"), True),
        (ValueError("Error while serializing: I/O error: File too large (os error 27)"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("I/O error: Permission denied (os error 13)"), False),
    ],
)
def test_what_libraries_say_of_a_full_disk_is_known_and_nothing_else_is_taken_for_it(error, full, tmp_path):
    with pytest.raises(StorageError if full else type(error)), library_storage_errors(tmp_path):
        raise error


def test_another_order_than_the_planned_is_never_finished(job_in, tmp_path):
    job = job_in(tmp_path)
    fault(job, "shuffled")
    ended = train(job, FAULTY)
    assert (ended.code, ended.error()["class"]) == (1, "TrainingError")
    assert "what was fed is not what was planned" in ended.error()["message"]
    assert not (tmp_path / "out" / "adapter").exists()
