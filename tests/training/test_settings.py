"""Every setting is read back from what runs: one that something ignored on the way is named, none is taken on trust."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specs.parameters import TrainingConfiguration, leaves, replace
from tasks.data.batch_plan import read_plan
from tasks.training.arguments import training_arguments
from tasks.training.feed import group_steps
from tasks.training.job import Job
from tasks.training.models import build_trainable
from tasks.training.settings import effective_settings, requested_settings, without_effect
from tests.support.samples import make_job, small_training, training_samples

IGNORED: dict[str, Any] = {
    "lora.rank": 8,
    "lora.alpha": 16.0,
    "lora.dropout": 0.1,
    "lora.targets": ["q_proj"],
    "weights": "bf16",
    "compute": "amp-bf16",
    "optimizer": "sgd",
    "lr": 1e-4,
    "lr_schedule": "linear",
    "lr_warmup_steps": 1,
    "weight_decay": 0.1,
    "max_grad_norm": 0.5,
    "epochs": 1,
    "max_steps": 7,
    "micro_batch": 8,
    "gradient_accumulation": 1,
    "max_length": 16,
    "max_tokens_per_step": 64,
    "max_tokens_per_micro_batch": 32,
    "packing": True,
    "activation_checkpointing": True,
    "attention": "eager",
    "allocator": "expandable_segments",
    "seed": 18,
    "save_steps": 3,
    "save_minutes": 5.0,
    "keep_checkpoints": 3,
    "spikes": "skip",
    "threads": 3,
    "ranks": 2,
    "method": "full",
    "plain_text_share": 0.5,
    "plain_text_kinds": ["note"],
    "sharding": "zero1",
}
"""Another value than that of `small_training`, which is what really runs."""

OURS = {
    "early_judgement": "when it is due, the job names its step and samples; nothing of a library could ignore it",
    "judge_after": "the same",
    "fill_micro_batches": "test_batches.py holds it with a plan of its own",
}


@pytest.fixture(scope="module")
def running(tiny_model: Path, samples_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What runs: model, optimizer and plan of `small_training`, and what is read back of them for an asked one."""
    from transformers import Trainer

    folder = tmp_path_factory.mktemp("settings")
    (folder / "samples.parquet").write_bytes(samples_file.read_bytes())
    real = small_training(max_steps=None)
    job = Job.model_validate_json(make_job(folder, tiny_model, real).read_bytes())
    steps = group_steps(read_plan(job.plan))
    longest = max(n for _, n in training_samples(samples_file))
    trainer: Any = Trainer(
        build_trainable(tiny_model, real, "cpu"), training_arguments(real, len(steps), folder, "cpu")
    )
    trainer.state.max_steps = len(steps)
    trainer.create_optimizer_and_scheduler(len(steps))
    trainer.save_steps, trainer.save_minutes = real.save_steps, real.save_minutes
    trainer.spike_action, trainer.store = real.spikes, SimpleNamespace(keep=real.keep_checkpoints)
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(real.threads)

    def faults(asked: TrainingConfiguration) -> list[str]:
        effective = effective_settings(job.model_copy(update={"training": asked}), trainer, steps, longest)
        return without_effect(requested_settings(asked), effective)

    yield real, faults
    torch.set_num_threads(before)


def test_what_runs_as_it_was_asked_for_has_no_fault(running):
    real, faults = running
    assert faults(real) == []


@pytest.mark.parametrize("name", IGNORED)
def test_a_setting_that_something_ignored_is_named(name, running):
    real, faults = running
    asked = TrainingConfiguration.model_validate(replace(real.model_dump(mode="json"), name, IGNORED[name]))
    assert any(fault.startswith((f"{name}: asked", "max_steps: asked")) for fault in faults(asked)), faults(asked)


def test_no_setting_of_a_training_is_left_out_here():
    names = leaves(TrainingConfiguration().model_dump(mode="json")).keys()
    assert names == IGNORED.keys() | OURS.keys()
