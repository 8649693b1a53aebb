"""Failures that people reported in public, each against our worker, and on a plain `Trainer` where it still has them.

The table of `docs/training.md` says which test is of which failure; `tests/docs/test_training_page.py` compares.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specs.errors import InputError, Stopped, StorageError, TrainingError
from specs.stages import Quiet
from tasks.data.batch_plan import PlanRow, plan_batches
from tasks.interrupts import StopRequest
from tasks.prompts import Encoded, PromptTemplate
from tasks.training.census import take_census
from tasks.training.checkpoints import CheckpointStore
from tasks.training.collate import IGNORED, collate
from tasks.training.evaluation import mean_loss, sample_losses
from tasks.training.feed import Feed, check_lengths, group_steps
from tasks.training.job import Job
from tests.support.forked import train
from tests.support.samples import small_training, training_samples, write_samples

pytestmark = pytest.mark.skipif(os.name == "nt", reason="training on Windows is by WSL2")


@pytest.fixture(scope="module")
def plain(tiny_model: Path, samples_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a plain `Trainer` did in each situation."""
    from tests.support.samples import make_job

    folder = tmp_path_factory.mktemp("plain")
    shutil.copyfile(samples_file, folder / "samples.parquet")
    assert train(make_job(folder, tiny_model), "tests.training.plain_trainer").code == 0
    found: dict[str, Any] = json.loads((folder / "plain.json").read_text())
    return found


def resumed(job: Path) -> Any:
    """The end of a worker that goes on without being killed again."""
    found = Job.model_validate_json(job.read_bytes())
    job.write_text(found.model_copy(update={"kill_after_step": None}).model_dump_json())
    return train(job)


def fed(out: Path) -> list[list[str]]:
    return [json.loads(line)["sample_ids"] for line in (out / "micro_batches.jsonl").read_text().splitlines()]


# -- the worker of Gatewright


@pytest.mark.slow
def test_order_and_random_numbers_after_the_end_of_an_epoch_are_those_of_the_whole_training(job_in, tmp_path):
    """Killed right after the save at the end of the first epoch, step 7: the resume begins in the second one."""
    training = small_training(max_steps=9, save_steps=7)
    straight, killed = job_in(tmp_path / "a", training), job_in(tmp_path / "b", training, kill_after_step=7)
    assert train(straight).code == 0
    assert train(killed).code == -signal.SIGKILL
    assert resumed(killed).result()["resumed_from"] == 7
    one, other = tmp_path / "a" / "out", tmp_path / "b" / "out"
    assert fed(one) == fed(other)
    census = [json.loads(line) for line in (other / "census.jsonl").read_text().splitlines()]
    assert [(c["epoch"], c["planned"], c["fed"], c["too_often"] + c["too_rarely"]) for c in census] == [
        (1, 40, 40, 0),
        (2, 12, 12, 0),
    ]
    weights = "adapter/adapter_model.safetensors"
    assert (one / weights).read_bytes() == (other / weights).read_bytes()


def test_other_samples_on_resume_are_refused_not_taken_for_trained(killed, tiny_model, tmp_path):
    job = killed(tmp_path)
    write_samples(tmp_path / "samples.parquet", tiny_model, seed=4)
    ended = train(job)
    assert (ended.code, ended.error()["class"]) == (2, "InputError")
    assert "is not the file of the data stage" in ended.error()["message"]


def test_another_batch_size_on_resume_is_refused_with_what_was_and_is(killed, tmp_path):
    ended = train(killed(tmp_path, training=small_training(micro_batch=6, gradient_accumulation=1)))
    assert ended.code == 6
    lines = ended.error()["message"].splitlines()
    assert any(line.split() == ["training.micro_batch", "2", "6"] for line in lines)


def test_a_finished_training_asked_for_more_is_refused_not_called_done(uninterrupted, job_in, tmp_path):
    """More epochs than the finished training had: nothing is trained, and nobody is told that this was it."""
    for name in ("out", "checkpoints"):
        shutil.copytree(uninterrupted.parent / name, tmp_path / name)
    (tmp_path / "out" / "job.json").unlink(missing_ok=True)
    ended = train(job_in(tmp_path, small_training(epochs=3, max_steps=None)))
    assert (ended.code, ended.error()["class"]) == (6, "ResumeRefused")
    lines = [line.split() for line in ended.error()["message"].splitlines()]
    assert ["training.epochs", "2", "3"] in lines


def test_a_length_limit_that_the_plan_does_not_keep_to_is_refused_before_the_first_step(job_in, tmp_path):
    """There the limit was asked for, nothing was cut or left out, and longer samples were trained on as a whole."""
    job = job_in(tmp_path)
    found = Job.model_validate_json(job.read_bytes())
    longest = max(n for _, n in training_samples(tmp_path / "samples.parquet"))
    asked = found.training.model_copy(update={"max_length": longest - 1})
    job.write_text(found.model_copy(update={"training": asked}).model_dump_json())
    ended = train(job)
    assert f"settings without effect: max_length: asked {longest - 1}, in effect {longest}" in ended.error()["message"]
    assert not (tmp_path / "out" / "metrics.jsonl").exists()
    with pytest.raises(InputError, match=f"longer than max_length = {longest - 1}"):
        plan_batches(training_samples(tmp_path / "samples.parquet"), asked)


def test_a_sample_without_anything_to_learn_is_refused_before_the_first_step():
    with pytest.raises(TrainingError, match="sample s1 has no token to learn"):
        check_lengths([PlanRow(1, 1, 0, 0, 0, "s1", 3, 3)], {"s1": Encoded([1, 2, 3], 3)})


def test_a_resume_at_any_step_feeds_what_was_left_the_first_step_of_the_next_epoch_too():
    """In the plan, epochs have orders of their own, so that a replay of the first one would be seen."""
    samples = [(f"s{n:02d}", 4 + n % 9) for n in range(23)]
    steps = group_steps(plan_batches(samples, small_training(epochs=3, max_steps=None)))
    encoded = {i: Encoded([1] * n, 0) for i, n in samples}
    whole = [[b.planned.sample_ids for b in step.micro_batches] for step in Feed(steps, encoded, 0)]
    ends = [n for n, step in enumerate(steps) if n and step.epoch != steps[n - 1].epoch]
    assert len({tuple(map(tuple, whole[a:b])) for a, b in pairwise([0, *ends, len(steps)])}) == 3
    for start in range(len(steps) + 1):
        left = Feed(steps, encoded, 0, start)
        assert [[b.planned.sample_ids for b in step.micro_batches] for step in left] == whole[start:]
    for end in ends:
        after = [i for step in whole[end : end + len(steps) // 3] for batch in step for i in batch]
        assert sorted(after) == sorted(encoded)


def test_a_resume_inside_a_later_epoch_has_the_order_of_that_epoch_not_of_the_first():
    """And a feed that goes on in the order of the first epoch, as a sampler does that never hears of the epoch, does
    not pass the census."""
    samples = [(f"s{n:02d}", 8) for n in range(24)]
    steps = group_steps(plan_batches(samples, small_training(epochs=2, max_steps=None)))
    encoded = {i: Encoded([1] * n, 0) for i, n in samples}
    first, second = ([step for step in steps if step.epoch == epoch] for epoch in (1, 2))
    resumed_at = len(first) + len(second) // 2

    def lines(fed: list[Any]) -> list[dict[str, Any]]:
        numbered = zip(second, [*second[: len(second) // 2], *fed], strict=True)
        return [
            {"step": planned.step, "micro_batch": batch.number, "sample_ids": list(batch.sample_ids)}
            for planned, step in numbered
            for batch in step.micro_batches
        ]

    ours = [step.planned for step in Feed(steps, encoded, 0, resumed_at)]
    assert take_census(2, steps, lines(ours)).fault == ""
    replayed = take_census(2, steps, lines(first[len(second) // 2 :]))
    assert replayed.too_often == replayed.too_rarely > 0
    assert replayed.fault.startswith("epoch 2: what was fed is not what was planned")


@pytest.mark.parametrize("by_sample", [False, True])
def test_a_stop_asked_for_between_two_batches_of_an_evaluation_ends_it_before_the_next(by_sample):
    stop, computed = StopRequest(), []

    class Counting(torch.nn.Module):
        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            computed.append(len(input_ids))
            if len(computed) == 2:
                stop.request("SIGTERM")
            return SimpleNamespace(logits=torch.zeros((*input_ids.shape, 9)))

    encoded = {f"s{n}": Encoded([1, 2, 3], 1) for n in range(8)}
    batches = Feed([], encoded, 0).batches(sorted(encoded), 1)
    of_samples = partial(sample_losses, Counting(), batches, encoded, "cpu", "fp32", stop)
    with pytest.raises(Stopped, match="every step trained is saved"):
        (of_samples if by_sample else partial(mean_loss, Counting(), batches, "cpu", "fp32", stop, Quiet()))()
    assert computed == [1, 1]


def test_a_training_that_ends_short_of_its_plan_does_not_end_well(job_in, tmp_path):
    """Its steps are fewer than planned because the feed gives out, as it does where an epoch is skipped on resume."""
    ended = train(job_in(tmp_path), "tests.training.short_worker")
    assert ended.code not in (0, None)
    assert "the batch plan ended before the planned steps were done" in ended.error()["message"]
    assert not (tmp_path / "out" / "result.json").exists()


def test_with_one_checkpoint_to_keep_one_is_there_at_every_moment_and_the_best_one_stays(tmp_path):
    store = CheckpointStore(tmp_path, 1, lambda _: 10**9)

    def complete() -> list[int]:
        return sorted(int(p.name) for p in tmp_path.iterdir() if p.is_dir() and p.name.isdecimal())

    seen: list[list[int]] = []

    def write(folder: Path) -> None:
        seen.append(complete())
        (folder / "weights").write_bytes(b"w")

    for step in (5, 10, 15, 20):
        store.publish(step, write, 1)
        if step == 10:
            store.pin(step, "the lowest loss")
    assert seen == [[], [5], [10], [10, 15]]
    assert complete() == [10, 20]

    def fail(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises((OSError, StorageError)):
        store.publish(25, fail, 1)
    assert complete() == [10, 20]


def test_the_end_token_is_learnt_even_where_it_is_the_padding_token(tiny_model):
    template = PromptTemplate.load(tiny_model)
    end = int(template.tokenizer.eos_token_id)
    samples = [template.encode("spindle", "check"), template.encode("axis X of the second machine", "adjust")]
    tensors = collate(samples, 40, pad_id=end)
    for row, sample in enumerate(samples):
        n = len(sample.input_ids)
        assert int(tensors["input_ids"][row, n - 1]) == int(tensors["labels"][row, n - 1]) == end
        assert bool((tensors["input_ids"][row, n:] == end).all())
        assert bool((tensors["labels"][row, n:] == IGNORED).all())


@pytest.mark.slow
def test_the_end_of_an_answer_is_learnt_where_the_usual_collator_masks_it(tiny_model):
    """Where padding and end share an id, transformers' collator for language models masks both."""
    from transformers import AutoTokenizer, DataCollatorForLanguageModeling

    template = PromptTemplate.load(tiny_model)
    end = int(template.tokenizer.eos_token_id)
    samples = [template.encode("spindle", "check"), template.encode("axis X", "adjust the limit switch")]
    tokenizer: Any = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.pad_token = tokenizer.eos_token
    usual: Any = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    theirs = usual([{"input_ids": s.input_ids} for s in samples])["labels"]
    ours = collate(samples, max(len(s.input_ids) for s in samples), end)["labels"]
    for row, sample in enumerate(samples):
        last = len(sample.input_ids) - 1
        assert sample.input_ids[last] == end
        assert (int(theirs[row, last]), int(ours[row, last])) == (IGNORED, end)


def test_samples_of_a_batch_do_not_see_each_other_and_packed_ones_would(tiny_model):
    import torch

    from tasks.training.models import load_base

    model = load_base(tiny_model)
    template = PromptTemplate.load(tiny_model)
    first, second = template.encode("spindle overheats", "fan"), template.encode("axis X", "switch")
    changed = Encoded([*first.input_ids[:-2], 5, 6], first.trainable_from)
    width = max(len(s.input_ids) for s in (first, second))
    n = len(second.input_ids)

    def apart(one: Encoded) -> Any:
        tensors = collate([one, second], width, 0)
        with torch.no_grad():
            return model(tensors["input_ids"], attention_mask=tensors["attention_mask"]).logits[1, :n]

    def packed(one: Encoded) -> Any:
        ids = torch.tensor([one.input_ids + second.input_ids])
        with torch.no_grad():
            return model(ids, attention_mask=torch.ones_like(ids)).logits[0, -n:]

    assert torch.equal(apart(first), apart(changed))
    assert not torch.allclose(packed(first), packed(changed), atol=1e-3)


# -- the plain trainer


@pytest.mark.slow
def test_the_plain_trainer_feeds_another_order_after_a_resume_when_it_groups_by_length(plain):
    assert plain["grouped_resumed"]["error"] == ""
    assert plain["grouped_resumed"]["fed"] != plain["grouped"]["fed"][15:]
    trained = [i for batch in plain["grouped"]["fed"][10:15] + plain["grouped_resumed"]["fed"] for i in batch]
    assert len(set(trained)) < 40  # of the second epoch some are never seen, some twice


@pytest.mark.slow
def test_the_plain_trainer_takes_other_samples_for_trained_and_ends_well(plain):
    assert (plain["other_data"]["error"], plain["other_data"]["fed"], plain["other_data"]["steps"]) == ("", [], 20)


@pytest.mark.slow
def test_the_plain_trainer_goes_on_with_another_batch_size(plain):
    found = plain["other_batch"]
    assert (found["error"], found["steps"]) == ("", 12)
    assert all(len(batch) == 2 for batch in found["fed"])


@pytest.mark.slow
def test_the_plain_trainer_makes_a_lost_optimizer_state_anew_in_silence(plain):
    assert (plain["no_optimizer"]["error"], plain["no_optimizer"]["steps"]) == ("", 20)


@pytest.mark.slow
def test_the_plain_trainer_has_no_way_back_from_an_incomplete_newest_checkpoint(plain):
    assert plain["incomplete"]["error"] == "FileNotFoundError"


@pytest.mark.slow
def test_the_plain_trainer_goes_on_after_a_loss_that_is_not_a_number_and_spoils_the_weights(plain):
    assert (plain["nan"]["error"], plain["nan"]["steps"], plain["nan"]["finite"]) == ("", 4, False)


@pytest.mark.slow
def test_the_plain_trainer_evaluates_to_the_end_after_a_stop_was_asked_for(plain):
    assert plain["stopped_in_evaluation"]["batches"] == plain["stopped_in_evaluation"]["planned"] > 2
    assert plain["stopped_in_evaluation"]["steps"] == 1


def test_the_plain_trainer_trains_on_nothing_without_a_word(plain):
    assert (plain["masked"]["error"], plain["masked"]["steps"]) == ("", 2)
