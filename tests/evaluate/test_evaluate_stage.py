"""The stage through its worker process: same bytes as in this process, both kinds of trained weights, plain errors."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specs.canonical import digest_folder
from specs.errors import InputError, ModelError
from specs.stages import Quiet
from tasks.evaluate.stage import make_job, run
from tasks.evaluate.worker import evaluate
from tasks.interrupts import StopRequest
from tests.support.stages import stage_context


def again(lab, evaluated, tmp_path, **changes):
    """The same inputs, another place to write to."""
    parameters = {**evaluated.context.parameters, **changes.pop("parameters", {})}
    inputs = {**evaluated.inputs, **changes.pop("inputs", {})}
    return stage_context("evaluate", tmp_path, lab.model, parameters, inputs, **changes)


def test_the_worker_process_writes_what_this_process_writes(lab, tmp_path):
    evaluated = lab.evaluated("en", "true")
    context = again(lab, evaluated, tmp_path)
    result = run(context, Quiet())
    for name in ("eval_losses.parquet", "generations.jsonl"):
        assert (context.artifacts / name).read_bytes() == (evaluated.context.artifacts / name).read_bytes(), name
    assert result.notes == ["1 held-out samples are plain text: they count for losses only"]


def test_the_evaluated_weights_are_named_by_digest(lab):
    evaluated = lab.evaluated("en", "true")
    found = json.loads((evaluated.context.artifacts / "evaluated.json").read_bytes())
    assert found["adapter_sha256"] == digest_folder(evaluated.inputs["train"] / "artifacts" / "adapter")
    assert found["base_model_sha256"] == evaluated.context.base_model_sha256


def test_full_weights_are_evaluated_in_place_of_an_adapter(lab, tmp_path):
    evaluated = lab.evaluated("en", "true")
    train = tmp_path / "train"
    shutil.copytree(lab.model, train / "artifacts" / "model")
    shutil.copyfile(evaluated.inputs["train"] / "artifacts" / "settings.json", train / "artifacts" / "settings.json")
    context = again(lab, evaluated, tmp_path, inputs={"train": train}, parameters={"generations": 1})
    evaluate(make_job(context)[0], Quiet(), StopRequest())
    rows = pq.read_table(context.artifacts / "eval_losses.parquet").to_pylist()
    assert all(r["loss_base"] == r["loss_adapter"] for r in rows), "the weights are the base model's own"
    assert json.loads((context.artifacts / "evaluated.json").read_bytes())["kind"] == "model"


def test_a_base_model_that_changed_is_refused(lab, tmp_path):
    evaluated = lab.evaluated("en", "true")
    job, _ = make_job(again(lab, evaluated, tmp_path))
    other = job.model_copy(update={"base_model_sha256": "0" * 64})
    with pytest.raises(ModelError, match="not the base model that this run is about"):
        evaluate(other, Quiet(), StopRequest())


def test_a_stop_leaves_no_half_result(lab, tmp_path):
    from specs.errors import Stopped

    evaluated = lab.evaluated("en", "true")
    context = again(lab, evaluated, tmp_path)
    stop = StopRequest()
    stop.request("test")
    with pytest.raises(Stopped):
        evaluate(make_job(context)[0], Quiet(), stop)
    assert list(context.artifacts.iterdir()) == []


def test_no_held_out_samples_is_said_plainly(lab, tmp_path):
    evaluated = lab.evaluated("en", "true")
    rows = pq.read_table(evaluated.inputs["data"] / "artifacts" / "samples.parquet").to_pylist()
    (tmp_path / "data" / "artifacts").mkdir(parents=True)
    rows = [r for r in rows if r["split"] == "train"]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data" / "artifacts" / "samples.parquet")
    with pytest.raises(InputError, match="no held-out samples"):
        make_job(again(lab, evaluated, tmp_path, inputs={"data": tmp_path / "data"}))


def test_notes_are_in_the_language_of_the_project(lab):
    _, notes = make_job(lab.evaluated("zh", "true").context)
    assert notes == ["1 个留出样本是纯文本，只计入损失"]
