"""What the agent may propose and a person may edit: the parameters of each stage, with units and bounds."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from specs.base import Sha256, Strict
from specs.canonical import digest
from specs.trials import TrialParameters

Method = Literal["lora", "qlora", "dora", "full"]
Allocator = Literal["default", "expandable_segments", "max_split_size"]
PlainTextKind = Literal["manual", "note", "instruction"]
Optimizer = Literal["adamw", "adamw_fused", "adamw_8bit", "paged_adamw_8bit", "adafactor", "sgd"]


class LoraParameters(Strict):
    """Low-rank adapters on linear layers; update = alpha / rank * B A."""

    rank: int = Field(16, ge=1, le=1024, description="inner dimension of A and B")
    alpha: float = Field(32, gt=0, description="scale of the update")
    dropout: float = Field(0.05, ge=0, lt=1, description="share of adapter inputs dropped in training")
    targets: Literal["all-linear"] | list[str] = Field(
        "all-linear", description="names of linear layers; all-linear: every one but the output layer"
    )


class TrainingConfiguration(Strict):
    """Everything that affects memory, order or numerics of training; its digest is the fingerprint."""

    method: Method = Field("lora", description="what is trained: adapters, or every weight")
    lora: LoraParameters = Field(LoraParameters(), description="the adapters")
    weights: Literal["fp32", "bf16", "fp16", "nf4", "nf4-dq"] = Field(
        "fp32", description="how base weights are stored; nf4-dq quantises the scales too"
    )
    compute: Literal["fp32", "bf16", "amp-bf16", "amp-fp16"] = Field(
        "fp32", description="precision of the arithmetic; amp: autocast"
    )
    optimizer: Optimizer = Field("adamw", description="optimizer and the precision of its states")
    lr: float = Field(2e-4, gt=0, lt=1, description="peak learning rate")
    lr_schedule: Literal["linear", "cosine", "constant"] = Field("cosine", description="decay after the warm-up")
    lr_warmup_steps: int = Field(0, ge=0, description="optimizer steps with a rising learning rate")
    weight_decay: float = Field(0.0, ge=0, lt=1, description="decoupled weight decay")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    epochs: int = Field(1, ge=1, le=1000, description="passes over the training samples")
    max_steps: int | None = Field(None, ge=1, description="optimizer steps at most; null: epochs decide")
    micro_batch: int = Field(1, ge=1, description="samples per forward pass")
    gradient_accumulation: int = Field(8, ge=1, description="micro batches per optimizer step, over all ranks")
    max_length: int = Field(1024, ge=8, description="tokens of the longest sample")
    max_tokens_per_step: int | None = Field(None, ge=8, description="padded tokens per optimizer step at most")
    max_tokens_per_micro_batch: int | None = Field(
        None, ge=8, description="padded tokens per forward pass at most; long samples: more micro batches"
    )
    fill_micro_batches: bool = Field(
        False,
        description="short samples of a step go through in fewer passes, none with more padded tokens than micro_batch "
        "of the longest sample",
    )
    plain_text_share: float | None = Field(
        None, ge=0, le=1, description="plain text among the samples of an epoch; null: all samples once, as they are"
    )
    plain_text_kinds: list[PlainTextKind] | None = Field(
        None, min_length=1, description="kinds of samples whose plain text is trained on; null: all"
    )
    packing: bool = Field(
        False, description="samples of a step share rows of at most max_length tokens, and do not see each other"
    )
    activation_checkpointing: bool = Field(False, description="recompute activations: less memory, more time")
    attention: Literal["sdpa", "eager", "flash"] = Field("sdpa", description="implementation of attention")
    allocator: Allocator = Field("default", description="how the GPU's caching allocator divides memory; CPU: default")
    seed: int = Field(17, ge=0, lt=2**31, description="order of samples, dropout, adapter start")
    save_steps: int = Field(10, ge=1, description="optimizer steps between checkpoints")
    save_minutes: float | None = Field(30.0, gt=0, description="minutes between checkpoints; null: steps decide")
    keep_checkpoints: int = Field(2, ge=1, description="newest checkpoints that are kept")
    spikes: Literal["note", "skip", "roll_back", "stop"] = Field(
        "note", description="what a step far above the losses before it causes; it is always recorded"
    )
    early_judgement: Literal["off", "note", "act"] = Field(
        "act", description="what a held-out loss that does not fall causes early on; act: the training asks or stops"
    )
    judge_after: float | None = Field(
        None, gt=0, lt=1, description="share of the steps after which is judged; null: the first of several epochs"
    )
    threads: int = Field(2, ge=1, description="CPU threads of each rank; another count changes bits")
    ranks: int = Field(1, ge=1, le=64, description="processes, each with a device, that share every optimizer step")
    sharding: Literal["ddp", "zero1", "zero2", "zero3", "fsdp"] = Field(
        "ddp", description="what ranks divide beside the samples; ddp: nothing, each holds the whole model"
    )

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step, over all ranks."""
        return self.micro_batch * self.gradient_accumulation


class DataParameters(Strict):
    """How the raw files become samples."""

    near_duplicate_threshold: float = Field(0.7, gt=0, le=1, description="Jaccard of shingle sets")
    eval_share: float = Field(0.1, gt=0, lt=0.5, description="share of samples held out, by duplicate component")
    eval_at_most: int | None = Field(5_000, ge=1, description="samples held out at most; null: no limit")
    max_length: int | None = Field(None, ge=16, description="tokens; null: the longest sample decides")
    over_long: Literal["ask", "split", "drop_list", "truncate_prompt"] = Field(
        "ask", description="what happens to samples past max_length; answers are never cut"
    )
    conversation_loss: Literal["every_answer", "last_answer"] = Field(
        "every_answer", description="what is learnt of a conversation of several turns: each answer, or the last one"
    )
    buckets: int = Field(6, ge=1, le=64, description="length buckets")
    paragraph_tokens: int = Field(128, ge=16, description="target length of a manual paragraph")
    window_s: float = Field(60.0, gt=0, description="length of a sensor window")
    fault_horizon_s: float = Field(300.0, ge=0, description="a fault event this long after a window labels it")
    seed: int = Field(17, ge=0, lt=2**31, description="of the split and the sketches")


class DryRunParameters(Strict):
    """A short run of a small model over the same pipeline."""

    model: str = Field(description="the small model: as base_model in the spec")
    steps: int = Field(30, ge=4, description="optimizer steps")
    training: TrainingConfiguration = Field(description="the configuration of these steps")
    trials: TrialParameters = Field(TrialParameters(), description="small trials beside it; vary: [] makes none")

    @model_validator(mode="after")
    def _adapters_for_rank(self) -> DryRunParameters:
        if self.training.method == "full" and "rank" in self.trials.vary:
            raise ValueError("method full has no adapter: take rank out of trials.vary")
        return self


class StressTestParameters(Strict):
    """The training configuration to measure, and for how many steps of the heaviest bucket."""

    training: TrainingConfiguration = Field(description="the configuration to measure")
    growth_steps: int = Field(3, ge=1, description="steps of the heaviest bucket that must not grow in memory")


class TrainParameters(Strict):
    """The training configuration, the same that passed the stress test."""

    training: TrainingConfiguration = Field(description="equal to that of the stress test")


class EvaluateParameters(Strict):
    """Held-out losses and generations."""

    generations: int = Field(16, ge=1, description="held-out samples that are answered")
    max_new_tokens: int = Field(64, ge=1, description="tokens of one answer at most")
    generation_batch: int = Field(4, ge=1, description="answers written at a time")
    loss_batch: int = Field(4, ge=1, description="samples per forward pass for losses")
    seed: int = Field(17, ge=0, lt=2**31, description="which samples are answered")
    threads: int = Field(2, ge=1, description="CPU threads of the worker")


class ReleaseParameters(Strict):
    """What goes into the release bundle."""

    merged_model: bool = Field(False, description="put a merged copy of the model beside the adapter")


PARAMETERS: dict[str, type[Strict]] = {
    "data": DataParameters,
    "dry_run": DryRunParameters,
    "stress_test": StressTestParameters,
    "train": TrainParameters,
    "evaluate": EvaluateParameters,
    "release": ReleaseParameters,
}


def leaves(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted path to leaf value of nested parameters."""
    flat: dict[str, Any] = {}
    for key, item in value.items():
        path = f"{prefix}{key}"
        if isinstance(item, dict):
            flat.update(leaves(item, path + "."))
        else:
            flat[path] = item
    return flat


def resolve(parameters: dict[str, Any], key: str) -> str | None:
    """The dotted path that `key` names: the whole path, or the only path that ends in it."""
    flat = leaves(parameters)
    if key in flat:
        return key
    found = [path for path in flat if path.endswith("." + key)]
    return found[0] if len(found) == 1 else None


def replace(parameters: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of nested parameters with the leaf at the dotted `path` replaced."""
    head, _, rest = path.partition(".")
    return {**parameters, head: replace(parameters[head], rest, value) if rest else value}


ADDED_LATER: dict[str, Any] = {
    "packing": False,
    "allocator": "default",
    "ranks": 1,
    "sharding": "ddp",
    "plain_text_share": None,
    "plain_text_kinds": None,
    "fill_micro_batches": False,
}
"""Settings of a training that earlier versions did not know, with the value that means what those did."""


def fingerprint(training: TrainingConfiguration, base_model: Sha256, samples: Sha256) -> str:
    """What a stress test vouches for: the configuration, the base model and the samples, as one digest.

    Settings added later count only where they are used, so that digests recorded by earlier versions stay true.
    """
    settings = training.model_dump(mode="json")
    used = {name: v for name, v in settings.items() if name not in ADDED_LATER or v != ADDED_LATER[name]}
    return digest([used, base_model, samples])
