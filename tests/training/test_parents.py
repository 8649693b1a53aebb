"""A training that goes on from an earlier adapter: proven weights, the same base, no held-out sample it has learnt."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from specs.canonical import digest_folder, sha256_file
from specs.errors import GuardRefused, InputError
from specs.files import read_lines
from specs.parameters import LoraParameters
from specs.parent import LearntSamples, Parent, differing
from specs.stages import StageContext
from tasks.parents import learnt_samples, require_parent
from tests.support.forked import train
from tests.support.samples import small_training
from tests.support.stages import stage_context


def record(**changes) -> Parent:
    settings = {
        "named": "one",
        "run": "one",
        "folder": "runs/one/04-train/001/artifacts",
        "weights_sha256": "a" * 64,
        "base_model_sha256": "b" * 64,
        "method": "lora",
        "lora": LoraParameters(rank=4, alpha=8),
    }
    return Parent.model_validate({**settings, **changes})


def test_what_must_be_the_same_as_for_the_parent_is_shown_in_a_table():
    same = small_training(lora=LoraParameters(rank=4, alpha=8, dropout=0.2))
    assert differing(record(), same, "b" * 64) == []
    other = small_training(lora=LoraParameters(rank=8, alpha=8, targets=["q_proj"]), method="dora")
    table = "\n".join(differing(record(), other, "c" * 64))
    for words in ("base model and tokenizer", "lora.rank", "lora.targets", "method", "of the parent"):
        assert words in table
    assert "lora.alpha" not in table


def plain(context: StageContext) -> dict:
    return json.loads(context.model_dump_json())


@pytest.fixture
def grown(uninterrupted: Path, tmp_path: Path) -> Path:
    """A folder with the adapter of a finished training."""
    folder = tmp_path / "runs/one/04-train/001/artifacts"
    shutil.copytree(uninterrupted / "adapter", folder / "adapter")
    return folder


def test_training_begins_with_the_weights_of_the_parent(grown, uninterrupted, job_in, tmp_path):
    """The loss of its first probe is the last one of the parent, and a resume does not load the parent again."""
    sha = digest_folder(grown / "adapter")
    training = small_training(max_steps=3, save_steps=1)
    job = job_in(tmp_path / "next", training, parent=grown, parent_sha256=sha, stop_after_step=2)
    assert train(job).code == 0
    shutil.rmtree(grown)
    job = job_in(tmp_path / "next", training, parent=grown, parent_sha256=sha)
    assert train(job).code == 0
    out = tmp_path / "next/out"
    before = json.loads((out / "probe.json").read_bytes())["before"]
    assert before == json.loads((uninterrupted / "probe.json").read_bytes())["after"]
    assert json.loads((out / "settings.json").read_bytes())["parent_sha256"] == sha
    assert [line["step"] for line in read_lines(out / "metrics.jsonl")] == [1, 2, 3]


def test_an_adapter_that_is_not_the_one_of_the_job_is_never_loaded(grown, job_in, tmp_path):
    job = job_in(tmp_path / "next", small_training(max_steps=1), parent=grown, parent_sha256="0" * 64)
    ended = train(job)
    assert ended.code == 2
    assert "is not the one that this run began with" in ended.error()["message"]


def test_a_stage_refuses_a_parent_that_is_gone_changed_or_of_another_base(grown, tiny_model, tmp_path):
    context = stage_context("train", tmp_path, tiny_model, {}, {})
    sha = digest_folder(grown / "adapter")

    def with_parent(**changes):
        parent = record(weights_sha256=sha, base_model_sha256=context.base_model_sha256, **changes)
        return context.model_copy(update={"spec": context.spec.model_copy(update={"parent_record": parent})})

    assert require_parent(context) is None
    assert require_parent(with_parent(), small_training()) == grown
    with pytest.raises(GuardRefused, match=r"lora\.rank"):
        require_parent(with_parent(), small_training(lora=LoraParameters(rank=2, alpha=8)))
    other = with_parent().model_copy(update={"base_model_sha256": "c" * 64})
    with pytest.raises(GuardRefused, match="base model and tokenizer"):
        require_parent(other)
    with pytest.raises(InputError, match="is gone"):
        require_parent(with_parent(folder="runs/none"))
    (grown / "adapter" / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match="is not the one"):
        require_parent(with_parent())


def test_samples_that_a_parent_learnt_are_read_only_as_they_were(tmp_path, samples_file):
    path = tmp_path / "samples.parquet"
    shutil.copyfile(samples_file, path)
    one = LearntSamples(run="one", path="samples.parquet", sha256=sha256_file(path))
    assert learnt_samples(tmp_path, [one]) == [path]
    path.write_bytes(b"x")
    with pytest.raises(InputError, match="is changed"):
        learnt_samples(tmp_path, [one])


def test_the_verifier_sees_other_weights_than_the_parents(grown, tiny_model, tmp_path):
    from tasks.verify.train import _parent_mismatches

    sha = digest_folder(grown / "adapter")
    context = stage_context("train", tmp_path, tiny_model, {}, {})
    parent = record(weights_sha256=sha, base_model_sha256=context.base_model_sha256)
    found = plain(context.model_copy(update={"spec": context.spec.model_copy(update={"parent_record": parent})}))
    said = {"parent_sha256": sha, "base_model_sha256": context.base_model_sha256}
    assert _parent_mismatches(said, found).value == 0
    assert _parent_mismatches({**said, "parent_sha256": None}, found).value == 1
    assert _parent_mismatches({**said, "base_model_sha256": "c" * 64}, found).value == 1
    assert _parent_mismatches(said, plain(context)).value == 1
    assert _parent_mismatches({**said, "parent_sha256": None}, plain(context)).value == 0
    (grown / "adapter" / "adapter_config.json").write_text("{}")
    assert _parent_mismatches(said, found).value == 1
    shutil.rmtree(grown / "adapter")
    assert _parent_mismatches(said, found).value is None
