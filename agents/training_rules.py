"""How the rules choose a training configuration: batch from tokens and memory, learning rate from method and size."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from agents.contract import MemoryFunction, ProposerContext, fillable_at
from agents.draft import Draft
from agents.facts import DataFacts, data_facts, parameter_count
from agents.lr_rule import learning_rate
from agents.reason_texts import text
from agents.siblings import dry_run_model
from agents.trial_rules import follow_trends
from specs.limits import fit, upper
from specs.parameters import Method, TrainingConfiguration

CPU_MICRO_TOKENS = 1024
"""Tokens per forward pass on a CPU: more brings no speed there and costs memory."""

_GPU_MICRO_BATCH = 8
"""Samples per forward pass on a GPU to begin with; the memory account lowers it."""


@dataclass(frozen=True)
class Steps:
    """What a configuration means for these samples."""

    steps: int
    samples_seen: int
    samples_planned: int


def planned_steps(train: int, training: TrainingConfiguration) -> Steps:
    """Optimizer steps and samples of a run, as the batch plan counts them: an epoch ends with a partial step."""
    if train <= 0:
        return Steps(0, 0, 0)
    per_epoch = math.ceil(train / training.effective_batch)
    planned = train * training.epochs
    total = per_epoch * training.epochs
    if training.max_steps is None or training.max_steps >= total:
        return Steps(total, planned, planned)
    epochs, rest = divmod(training.max_steps, per_epoch)
    return Steps(training.max_steps, min(planned, epochs * train + rest * training.effective_batch), planned)


def choose_training(draft: Draft, context: ProposerContext, memory: MemoryFunction | None) -> None:
    """Fill `training` of the draft for `dry_run` or `stress_test`."""
    _numbers(draft, context)
    _objectives(draft)
    _as_parent(draft)
    found = data_facts(context)
    facts = replace(found, train=found.per_epoch(_training(draft)), plain={})
    _length(draft, facts)
    _batch(draft, context, facts)
    _learning_rate(draft, context)
    follow_trends(draft, context)
    if draft.gate == "dry_run":
        _dry_run_duration(draft, facts)
    else:
        _duration(draft, facts)
    draft.keep_within_limits()
    if memory is not None:
        _fit_memory(draft, memory)
    _fill(draft)


def _fill(draft: Draft) -> None:
    """Several micro batches per rank and step: those of short samples go through together."""
    training = _training(draft)
    if training.gradient_accumulation > training.ranks and not training.packing:
        draft.choose("training.fill_micro_batches", True, "fill", micro=training.micro_batch)


def _numbers(draft: Draft, context: ProposerContext) -> None:
    """Method, number formats, optimizer, ranks, threads."""
    method: Method = context.spec.method
    device = context.device
    ranks = context.spec.launcher.processes if draft.gate != "dry_run" else 1
    if ranks > 1:
        draft.choose("training.ranks", ranks, "ranks", source="project.yaml", ranks=ranks)
    draft.choose("training.method", method, "method", source="project.yaml")
    if device.get("kind", "cpu") == "cpu":
        cores = max(1, int(device.get("physical_cores") or 2) // ranks)
        draft.choose("training.threads", cores, "threads", source="device")
        if method == "qlora":
            draft.choose("training.weights", "nf4-dq", "weights_quantised", method=method)
        return
    bf16 = bool(device.get("bf16", True))
    dtype = "bf16" if bf16 else "fp16"
    compute = "amp-bf16" if bf16 else "amp-fp16"
    if method == "qlora":
        draft.choose("training.weights", "nf4-dq", "weights_quantised", method=method)
    elif method != "full":
        draft.choose("training.weights", dtype, "weights_gpu", source="device", dtype=dtype)
    draft.choose("training.compute", compute, "weights_gpu", source="device", dtype=dtype)
    draft.choose("training.optimizer", "adamw_fused", "weights_gpu", source="device", dtype=dtype)


def _objectives(draft: Draft) -> None:
    mix = draft.spec.objective_mix
    if mix is not None:
        draft.choose("training.plain_text_share", mix.ratio, "objective_mix", source="project.yaml")
        if mix.kinds is not None:
            draft.choose("training.plain_text_kinds", mix.kinds, "objective_mix", source="project.yaml")


def _as_parent(draft: Draft) -> None:
    """The adapter of a parent goes on as it is; a dry run proves the pipeline and begins with an adapter of its own."""
    parent = draft.spec.parent_record
    if parent is not None and draft.gate != "dry_run":
        for name in ("rank", "alpha", "targets"):
            draft.choose(f"training.lora.{name}", getattr(parent.lora, name), "parent", source="project.yaml")


def _length(draft: Draft, facts: DataFacts) -> None:
    """The longest sample rounded up; a dry run under a token cap leaves longer samples out, and says so.

    Where samples are to share rows, a step of it must have room for two.
    """
    cap = upper(draft.spec, draft.gate, "max_tokens_per_step")
    packing, _ = fit(draft.spec, draft.gate, "training.packing", _training(draft).packing)
    room = None if cap is None else int(cap) // (2 if packing and draft.gate == "dry_run" else 1)
    roof = max(8, room // 8 * 8) if room is not None else None
    if facts.longest is None:
        if roof is not None and roof < _training(draft).max_length:
            draft.choose("training.max_length", roof, "max_length_guess")
        return
    rounded = max(8, math.ceil(facts.longest / 8) * 8)
    if roof is None or rounded <= roof:
        draft.choose("training.max_length", rounded, "max_length", source="data.longest_sample", longest=facts.longest)
        return
    values = {"longest": facts.longest, "cap": int(cap or 0)}
    if draft.gate == "dry_run":
        draft.choose("training.max_length", roof, "max_length_dry", source="project.yaml", **values)
        draft.warnings.append(text(draft.spec.language, "warn_dry_longer", **values))
    else:
        draft.choose("training.max_length", rounded, "max_length", source="data.longest_sample", longest=facts.longest)
        draft.warnings.append(text(draft.spec.language, "warn_too_long", **values))


def _batch(draft: Draft, context: ProposerContext, facts: DataFacts) -> None:
    """Effective batch from the token cap and the number of samples; micro batch as its largest fitting divisor."""
    training = _training(draft)
    cap = upper(context.spec, draft.gate, "max_tokens_per_step")
    wanted = 8 if facts.train < 1000 else 16 if facts.train < 20_000 else 32
    room = wanted if cap is None else int(cap) // training.max_length
    effective = max(1, min(wanted, room))
    on_cpu = context.device.get("kind", "cpu") == "cpu"
    largest = max(1, CPU_MICRO_TOKENS // training.max_length) if on_cpu else _GPU_MICRO_BATCH
    bound = upper(context.spec, draft.gate, "micro_batch")
    largest = largest if bound is None else min(largest, max(1, int(bound)))
    of_rank, micro = _divide(max(1, effective // training.ranks), largest)
    effective = of_rank * training.ranks  # every rank has as many micro batches as the others
    if cap is not None:
        draft.choose("training.max_tokens_per_step", int(cap), "max_tokens_per_step", source="project.yaml")
        why = text(context.spec.language, "batch_cap", effective=effective, cap=int(cap))
    else:
        why = text(context.spec.language, "batch_size", train=facts.train)
    micro = draft.choose("training.micro_batch", micro, "batch", effective=effective, why=why)
    accumulation = max(1, effective // training.ranks // micro) * training.ranks
    draft.choose(
        "training.gradient_accumulation",
        accumulation,
        "accumulation",
        source="rule",
        accumulation=accumulation,
        micro=micro,
        effective=micro * accumulation,
    )


def _divide(effective: int, largest_micro: int) -> tuple[int, int]:
    """(effective batch, micro batch): at most one sample is given up where that makes micro batches whole.

    A prime effective batch above the largest micro batch would mean one sample per pass.
    """

    def best(batch: int) -> int:
        return max(d for d in range(1, batch + 1) if batch % d == 0 and d <= largest_micro)

    if effective > 2 and best(effective) == 1 and largest_micro > 1:
        return effective - 1, best(effective - 1)
    return effective, best(effective)


def _learning_rate(draft: Draft, context: ProposerContext) -> None:
    same_model = draft.gate != "dry_run" or dry_run_model(context.spec) == context.spec.base_model
    size = parameter_count(context.base_model) if same_model else None
    method = context.spec.method
    lr = learning_rate(method, size)
    shown = "?" if size is None else f"{size / 1e6:,.1f} M"
    draft.choose("training.lr", lr, "lr", source="rule", method=method, size=shown)


def _dry_run_duration(draft: Draft, facts: DataFacts) -> None:
    steps = int(draft.get("steps"))
    training = _training(draft)
    per_epoch = math.ceil(max(1, facts.train) / training.effective_batch)
    draft.choose("training.epochs", math.ceil(steps / per_epoch), "dry_steps", steps=steps)
    draft.choose("training.max_steps", steps, "dry_steps", steps=steps)
    _warmup_and_saves(draft, steps)


def _duration(draft: Draft, facts: DataFacts) -> None:
    """Three passes over few samples, two over some thousands, one over many; a cap on steps cuts them."""
    training = _training(draft)
    wanted = 3 if facts.train < 5000 else 2 if facts.train < 20_000 else 1
    cap = upper(draft.spec, draft.gate, "max_steps")
    per_epoch = math.ceil(max(1, facts.train) / training.effective_batch)
    if cap is not None:
        wanted = min(wanted, math.ceil(cap / per_epoch))
    steps = planned_steps(facts.train, training.model_copy(update={"epochs": wanted, "max_steps": None}))
    epochs = draft.choose("training.epochs", wanted, "epochs", train=facts.train, epochs=wanted, steps=steps.steps)
    full = planned_steps(facts.train, training.model_copy(update={"epochs": epochs, "max_steps": None}))
    if cap is not None:
        cut = planned_steps(facts.train, training.model_copy(update={"epochs": epochs, "max_steps": int(cap)}))
        seen = {"seen": cut.samples_seen, "total": full.samples_planned}
        draft.choose("training.max_steps", int(cap), "max_steps", source="project.yaml", **seen)
        if cut.samples_seen < full.samples_planned:
            draft.warnings.append(text(draft.spec.language, "warn_max_steps", epochs=epochs, **seen))
    _warmup_and_saves(draft, planned_steps(facts.train, _training(draft)).steps)


def _warmup_and_saves(draft: Draft, steps: int) -> None:
    warmup = min(100, round(steps * 0.05), max(0, steps - 1))
    draft.choose("training.lr_warmup_steps", warmup, "warmup", steps=steps)
    save = min(200, max(1, steps // 4))
    draft.choose("training.save_steps", save, "save_steps", save=save, steps=steps)


def _fit_memory(draft: Draft, memory: MemoryFunction) -> None:
    """Lower the micro batch at the same effective batch, then checkpoint activations, until the account fits."""
    start, fillable = _training(draft), fillable_at(draft.spec, draft.gate)
    divisors = [d for d in range(start.micro_batch, 0, -1) if start.effective_batch % (d * start.ranks) == 0]
    for checkpointing in sorted({start.activation_checkpointing, True}):
        for micro in divisors:
            accumulation = start.effective_batch // micro
            tried = start.model_copy(
                update={
                    "micro_batch": micro,
                    "gradient_accumulation": accumulation,
                    "activation_checkpointing": checkpointing,
                }
            )
            if not memory(tried).within(fillable).fits:
                continue
            if micro != start.micro_batch:
                draft.choose("training.micro_batch", micro, "memory_micro", source="memory")
                draft.choose("training.gradient_accumulation", accumulation, "memory_micro", source="memory")
            if checkpointing != start.activation_checkpointing:
                draft.choose("training.activation_checkpointing", True, "memory_checkpointing", source="memory")
            return
    draft.warnings.append(text(draft.spec.language, "warn_no_memory"))


def _training(draft: Draft) -> TrainingConfiguration:
    return TrainingConfiguration.model_validate(draft.parameters["training"])
