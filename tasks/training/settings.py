"""Settings: what was asked for, what is in effect, and what a checkpoint was written under."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

from specs.canonical import sha256_bytes, sha256_file
from specs.parameters import TrainingConfiguration, fingerprint, leaves
from tasks.allocator import in_effect
from tasks.data.batch_plan import fill_limit
from tasks.training.feed import PlannedStep
from tasks.training.job import Job

LIBRARIES = ("torch", "transformers", "peft", "accelerate", "tokenizers", "safetensors", "bitsandbytes", "numpy")


def library_versions() -> dict[str, str]:
    """Versions of what the numbers depend on; libraries that are not installed are left out."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def requested_settings(training: TrainingConfiguration) -> dict[str, Any]:
    """The configuration as flat dotted names; adapter settings only where there is an adapter."""
    flat = leaves(training.model_dump(mode="json"))
    return {k: v for k, v in flat.items() if training.method != "full" or not k.startswith("lora.")}


def recorded_settings(job: Job, device_name: str, tokenizer_sha256: str) -> dict[str, Any]:
    """What a checkpoint is written under, as flat dotted names; compared on resume."""
    return {
        **{f"training.{k}": v for k, v in requested_settings(job.training).items()},
        "base_model_sha256": job.base_model_sha256,
        "samples_sha256": job.samples_sha256,
        "plan_sha256": sha256_file(job.plan),
        "tokenizer_sha256": tokenizer_sha256,
        "parent_sha256": job.parent_sha256,
        "probe": sha256_bytes("\n".join(job.probe_sample_ids).encode()),
        "device": device_name,
        "processes": job.training.ranks,
        **{f"versions.{k}": v for k, v in library_versions().items()},
    }


def effective_settings(job: Job, trainer: Any, steps: Sequence[PlannedStep], longest: int) -> dict[str, Any]:
    """The same names as `requested_settings`, read back from model, optimizer, scheduler, plan and torch."""
    from tasks.training.models import is_adapted

    training = job.training
    found = _from_optimizer(training, trainer) | _from_plan(job, steps, longest) | _from_model(training, trainer)
    if is_adapted(trainer.model):
        found |= _from_adapter(training, trainer.model)
    return found


def _from_optimizer(training: TrainingConfiguration, trainer: Any) -> dict[str, Any]:
    import torch

    inner = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    group = inner.param_groups[0]
    kind = {"AdamW": "adamw", "Adafactor": "adafactor", "SGD": "sgd"}.get(type(inner).__name__, type(inner).__name__)
    if getattr(getattr(inner, "args", None), "optim_bits", None) == 8:  # bitsandbytes: one class for all of them
        kind = "paged_adamw_8bit" if getattr(inner, "is_paged", False) else "adamw_8bit"
    if kind == "adamw" and group.get("fused"):
        kind = "adamw_fused"
    return {
        "optimizer": kind,
        "lr": group.get("initial_lr", group["lr"]),
        "weight_decay": max(g["weight_decay"] for g in inner.param_groups),
        "lr_schedule": trainer.args.lr_scheduler_type.value,
        "lr_warmup_steps": trainer.args.get_warmup_steps(trainer.state.max_steps),
        "max_grad_norm": trainer.args.max_grad_norm,
        "seed": trainer.args.seed,
        "threads": torch.get_num_threads(),
        "ranks": torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1,
        "sharding": "ddp",  # every rank holds all weights, gradients and states: there is nothing else yet
        "save_steps": trainer.save_steps,
        "save_minutes": trainer.save_minutes,
        "spikes": trainer.spike_action,
        "keep_checkpoints": trainer.store.keep,
    }


def _objectives(job: Job, steps: Sequence[PlannedStep]) -> dict[str, Any]:
    """The share of plain text in the first epoch and its kinds, counted in what is planned.

    A plan that ends within the first epoch, or holds only some steps, shows no share; its kinds count all the same.
    """
    import pyarrow.parquet as pq

    training = job.training
    found: dict[str, Any] = {name: getattr(training, name) for name in ("plain_text_share", "plain_text_kinds")}
    if found == {"plain_text_share": None, "plain_text_kinds": None}:
        return found
    table = pq.read_table(job.samples, columns=["sample_id", "kind", "prompt"]).to_pylist()
    plain = {row["sample_id"]: row["kind"] for row in table if not row["prompt"]}
    planned = [i for step in steps for b in step.micro_batches for i in b.sample_ids]
    kinds = sorted({plain[i] for i in planned if i in plain})
    if training.plain_text_kinds is not None and not set(kinds) <= set(training.plain_text_kinds):
        found["plain_text_kinds"] = kinds
    first = [i for step in steps if step.epoch == 1 for b in step.micro_batches for i in b.sample_ids]
    whole = job.whole_plan and (training.max_steps is None or steps[-1].epoch > 1)
    if training.plain_text_share is not None and whole:
        share = sum(i in plain for i in first) / len(first)
        if abs(share - training.plain_text_share) > 1 / len(first):
            found["plain_text_share"] = share
    return found


def _from_plan(job: Job, steps: Sequence[PlannedStep], longest: int) -> dict[str, Any]:
    """A limit is in effect when nothing planned is above it; a size when the fullest step or batch has it.

    Of a plan that holds only some steps of a run, nothing is asked but to stay below. A token budget of a micro batch
    cuts steps into more and smaller ones, packing and filling need fewer, so that with them the samples of a step
    count; filled micro batches may have more rows, and no more tokens.
    """
    training = job.training
    samples = max(sum(len(b.sample_ids) for b in step.micro_batches) for step in steps)
    full = samples >= training.effective_batch
    micro_batch = max(b.rows for step in steps for b in step.micro_batches)
    batches = max(len(step.micro_batches) for step in steps)
    padded = max(sum(b.tokens for b in step.micro_batches) for step in steps)
    largest = max(b.tokens for step in steps for b in step.micro_batches)
    packed = any(b.places for step in steps for b in step.micro_batches)
    widest = max(b.padded_tokens for step in steps for b in step.micro_batches) if packed else longest
    budget = training.max_tokens_per_micro_batch
    cap, cut = training.max_tokens_per_step, training.max_steps
    partly = cut is not None or not job.whole_plan
    one_step = len({step.epoch for step in steps}) == len(steps)  # the whole epoch is less than a step takes
    small = (
        not (full and job.whole_plan)
        and (one_step or cap is not None or not job.whole_plan)
        and micro_batch <= training.micro_batch
        and batches <= training.gradient_accumulation
    )
    if budget is not None or training.packing:
        small = micro_batch <= training.micro_batch and samples <= training.effective_batch
    if training.fill_micro_batches:
        within = largest <= (budget or training.micro_batch * training.max_length)
        small = within and samples <= training.effective_batch
    objectives = _objectives(job, steps)
    judging = job.judge_after_step is not None or not job.judge_sample_ids  # other stages than train never judge
    return {
        "early_judgement": training.early_judgement,
        "judge_after": training.judge_after if judging else None,
        "micro_batch": training.micro_batch if small else micro_batch,
        "gradient_accumulation": training.gradient_accumulation if small else batches,
        "max_length": training.max_length if widest <= training.max_length else widest,
        **objectives,
        "fill_micro_batches": training.fill_micro_batches
        and not (job.whole_plan and _could_be_fuller(training, steps)),
        "packing": training.packing if packed or not job.whole_plan else False,
        "max_tokens_per_step": cap if cap is None or padded <= cap else padded,
        "max_tokens_per_micro_batch": budget if budget is None or largest <= budget else largest,
        "max_steps": cut if cut is None or len(steps) <= cut or not job.whole_plan else len(steps),
        "epochs": training.epochs if partly and steps[-1].epoch <= training.epochs else steps[-1].epoch,
    }


def _could_be_fuller(training: TrainingConfiguration, steps: Sequence[PlannedStep]) -> bool:
    """Whether a micro batch has room for a row of the one after it, which is no longer. Those of several ranks are kept
    apart."""
    batches = [b for step in steps for b in step.micro_batches]
    limit = fill_limit(training, max(b.padded_tokens for b in batches))
    pairs = (pair for step in steps for pair in pairwise(step.micro_batches))
    return (
        training.ranks == 1
        and limit is not None
        and any((one.rows + 1) * max(one.padded_tokens, other.padded_tokens) <= limit for one, other in pairs)
    )


def _from_model(training: TrainingConfiguration, trainer: Any) -> dict[str, Any]:
    model = trainer.model
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    quantized = getattr(base, "is_loaded_in_4bit", False)
    frozen = {str(p.dtype).removeprefix("torch.") for n, p in base.named_parameters() if "lora_" not in n}
    formats = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
    weights = training.weights if quantized else "+".join(sorted(formats.get(f, f) for f in frozen))
    amp = {"bf16": "amp-bf16", "fp16": "amp-fp16"}.get(trainer.accelerator.mixed_precision)
    attention = {"flash_attention_2": "flash"}.get(base.config._attn_implementation, base.config._attn_implementation)
    trained = sum(p.numel() for p in base.parameters() if p.requires_grad)
    everything = trained == sum(p.numel() for p in base.parameters())
    method = "full" if everything else ("qlora" if quantized else "lora")
    if any("lora_magnitude_vector" in n for n, _ in base.named_parameters()):
        method = "dora"
    return {
        "method": method,
        "weights": weights,
        "compute": amp or (training.compute if quantized else weights),
        "attention": attention,
        "allocator": in_effect(os.environ),
        "activation_checkpointing": bool(getattr(base, "is_activation_checkpointing", False)),
    }


def _from_adapter(training: TrainingConfiguration, model: Any) -> dict[str, Any]:
    import torch

    adapted = {n: m for n, m in model.named_modules() if hasattr(m, "lora_A") and hasattr(m, "base_layer")}
    head = model.get_base_model().get_output_embeddings()
    inside = tuple(f"{n}." for n in adapted)
    linears = [
        n
        for n, m in model.named_modules()
        if isinstance(m, torch.nn.Linear) and m is not head and not n.startswith(inside)
    ]
    suffixes = sorted({n.rpartition(".")[2] for n in adapted})
    asked = training.lora.targets
    if asked == "all-linear":
        targets: Any = asked if not linears else suffixes
    else:
        targets = asked if sorted(asked) == suffixes else suffixes
    first = next(iter(adapted.values()))
    rate = getattr(first.lora_dropout["default"], "p", 0.0)
    return {
        "lora.rank": first.r["default"],
        "lora.alpha": float(first.lora_alpha["default"]),
        "lora.dropout": rate,
        "lora.targets": targets,
    }


def without_effect(requested: dict[str, Any], effective: dict[str, Any]) -> list[str]:
    """Settings that were asked for and are not in effect, in words."""
    names = [n for n in sorted(requested) if n not in effective or effective[n] != requested[n]]
    return [f"{n}: asked {requested[n]}, in effect {effective.get(n, 'unknown')}" for n in names]


def settings_document(job: Job, effective: dict[str, Any], device: dict[str, Any]) -> dict[str, Any]:
    """`settings.json`."""
    return {
        "requested": requested_settings(job.training),
        "effective": effective,
        "fingerprint": fingerprint(job.training, job.base_model_sha256, job.samples_sha256),
        "base_model_sha256": job.base_model_sha256,
        "samples_sha256": job.samples_sha256,
        "parent_sha256": job.parent_sha256,
        "plan_sha256": sha256_file(job.plan),
        "versions": library_versions(),
        "device": device,
    }


def tokenizer_digest(base_model: Path) -> str:
    """Digest of the files that tokens and template depend on."""
    names = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json")
    parts = [f"{name} {sha256_file(base_model / name)}" for name in names if (base_model / name).is_file()]
    return sha256_bytes("\n".join(parts).encode())
