"""A trained adapter is compared with the parent that it went on from, on the same held-out samples."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import safetensors.numpy

from specs.canonical import digest_folder
from specs.parent import Parent
from specs.stages import Quiet
from tasks.evaluate.stage import make_job
from tasks.evaluate.worker import evaluate
from tasks.interrupts import StopRequest
from tasks.verify.evaluate import metrics
from tests.evaluate.conftest import Evaluated, Lab


def changed_adapter(source: Path, target: Path) -> None:
    """An adapter that says something else."""
    shutil.copytree(source, target)
    path = target / "adapter_model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    tensors = {n: t + (0.05 if "lora_B" in n else 0) for n, t in tensors.items()}
    safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})


def with_parent(prepared: Evaluated, folder: Path) -> Evaluated:
    context = prepared.context
    record = Parent(
        named="one",
        folder=folder.relative_to(context.project_dir).as_posix(),
        weights_sha256=digest_folder(folder / "adapter"),
        base_model_sha256=context.base_model_sha256,
        method="lora",
        lora={"rank": 16, "alpha": 32},
    )
    spec = context.spec.model_copy(update={"parent_record": record})
    parameters = {**context.parameters, "generations": 1, "max_new_tokens": 1}
    return Evaluated(prepared.inputs, context.model_copy(update={"spec": spec, "parameters": parameters}))


def test_the_loss_since_the_parent_is_that_of_the_parent_evaluated_by_itself(lab: Lab):
    prepared = lab.prepared("en", "none", attempt=7)
    adapter = prepared.inputs["train"] / "artifacts" / "adapter"
    parent = prepared.context.project_dir / "parent"
    changed_adapter(adapter, parent / "adapter")
    found = with_parent(prepared, parent)
    evaluate(make_job(found.context)[0], Quiet(), StopRequest())
    values = metrics(found.context.out_dir, found.inputs, found.plain_context)
    assert values["evaluated_other_weights"].value == 0
    change = values["parent_loss_change"].value
    assert change is not None
    assert change != 0

    by_itself = lab.prepared("en", "none", attempt=8)
    shutil.rmtree(by_itself.inputs["train"] / "artifacts" / "adapter")
    shutil.copytree(parent / "adapter", by_itself.inputs["train"] / "artifacts" / "adapter")
    parameters = {**by_itself.context.parameters, "generations": 1, "max_new_tokens": 1}
    alone = Evaluated(by_itself.inputs, by_itself.context.model_copy(update={"parameters": parameters}))
    evaluate(make_job(alone.context)[0], Quiet(), StopRequest())
    of_parent = metrics(alone.context.out_dir, alone.inputs, alone.plain_context)
    assert change == pytest.approx(values["eval_loss_adapter"].value - of_parent["eval_loss_adapter"].value)
    assert of_parent["parent_loss_change"].value is None
    assert of_parent["parent_loss_change"].reason == "this run has no parent"

    path = found.context.artifacts / "evaluated.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "parent_sha256": None}))
    assert metrics(found.context.out_dir, found.inputs, found.plain_context)["evaluated_other_weights"].value == 1
