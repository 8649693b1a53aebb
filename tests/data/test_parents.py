"""A run that goes on from a parent holds nothing out that the parent has learnt, and says how much it kept in train."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specs.canonical import sha256_file
from specs.parent import LearntSamples, Parent
from specs.stages import Quiet
from tasks.data.stage import run
from tasks.verify.parent_leaks import parent_leakage
from tasks.verify.parquet_rows import ParquetRows
from tests.support.raw_project import Finished, stage_context


def a_parent(finished: Finished, context: Any, **changes: Any) -> Parent:
    path = finished.out / "artifacts" / "samples.parquet"
    where = path.relative_to(context.project_dir).as_posix()
    settings = {
        "named": "one",
        "run": "one",
        "folder": "runs/one/train",
        "weights_sha256": "a" * 64,
        "base_model_sha256": "b" * 64,
        "method": "lora",
        "lora": {},
        "learnt": [LearntSamples(run="one", path=where, sha256=sha256_file(path))],
    }
    return Parent.model_validate({**settings, **changes})


@pytest.mark.parametrize("finished", ["zh"], indirect=True)
def test_nothing_that_a_parent_learnt_is_held_out(finished: Finished, tiny_model: Path, tmp_path: Path, monkeypatch):
    """Another seed splits the same rows otherwise; without the parent's samples in mind, some would leak."""
    monkeypatch.setattr("tasks.data.stage.require_parent", lambda context: None)  # weights are looked at elsewhere
    contexts = {}
    for name, with_parent in (("apart", False), ("after", True)):
        context = stage_context(finished.folder, finished.spec, tiny_model, tmp_path / name, seed=99)
        parent = a_parent(finished, context)
        spec = context.spec.model_copy(update={"parent_record": parent})
        contexts[name] = context.model_copy(update={"spec": spec} if with_parent else {})
        result = run(contexts[name], Quiet())
    asked = json.loads(contexts["after"].model_dump_json())
    samples = {name: ParquetRows(c.artifacts / "samples.parquet") for name, c in contexts.items()}
    assert parent_leakage(samples["apart"], asked).value > 0
    assert parent_leakage(samples["after"], asked).value == 0
    before = {r["sample_id"]: r["split"] for r in finished.table("samples")}
    held_out = [r["sample_id"] for r in samples["after"] if r["split"] == "eval"]
    assert held_out
    assert {before[i] for i in held_out} == {"eval"}
    assert any("a parent was trained on" in note or "父训练已学过" in note for note in result.notes)


@pytest.mark.parametrize("finished", ["zh"], indirect=True)
def test_samples_that_are_not_known_never_pass(finished: Finished, tiny_model: Path, tmp_path: Path):
    context = stage_context(finished.folder, finished.spec, tiny_model, tmp_path)
    samples = ParquetRows(finished.out / "artifacts" / "samples.parquet")

    def found(**changes: Any):
        parent = a_parent(finished, context, **changes)
        spec = context.spec.model_copy(update={"parent_record": parent})
        return parent_leakage(samples, json.loads(context.model_copy(update={"spec": spec}).model_dump_json()))

    assert found().value == 0  # its own held-out samples are not what it learnt
    assert found(learnt_unknown=True).value is None
    gone = LearntSamples(run="one", path="nowhere.parquet", sha256="a" * 64)
    assert found(learnt=[gone]).value is None
    assert "gone or changed" in found(learnt=[gone]).reason
    assert parent_leakage(samples, json.loads(context.model_dump_json())).value == 0
