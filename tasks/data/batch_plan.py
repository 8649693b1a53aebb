"""The batch plan: the full, ordered list of micro batches of a run, made before training starts. Pure.

Steps come first: an epoch's samples are ordered by length (with a little noise, so that epochs differ), cut into
groups of `effective_batch`, and the groups are shuffled. Only then is each step cut into micro batches, so that
1 x 8 and 8 x 1 hold the same samples in every optimizer step. With a token budget, a step of long samples is cut into
more and smaller micro batches; the samples of the step stay the same.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from specs.errors import InputError
from specs.files import write_bytes
from specs.parameters import TrainingConfiguration

LENGTH_NOISE = 0.004
"""Relative width of the noise on lengths: other neighbours in every epoch, for well under 1 % of padding."""


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One sample in one micro batch. `epoch` and `step` from 1, `step` over the whole run, the others from 0."""

    epoch: int
    step: int
    rank: int
    micro_batch: int
    position: int
    sample_id: str
    n_tokens: int
    padded_tokens: int


Sized = tuple[str, int]
"""A sample id and its tokens."""

SCHEMA = pa.schema(
    [
        ("epoch", pa.int32()),
        ("step", pa.int32()),
        ("rank", pa.int32()),
        ("micro_batch", pa.int32()),
        ("position", pa.int32()),
        ("sample_id", pa.string()),
        ("n_tokens", pa.int32()),
        ("padded_tokens", pa.int32()),
    ]
)


def plan_batches(samples: Sequence[tuple[str, int]], training: TrainingConfiguration, ranks: int = 1) -> list[PlanRow]:
    """The plan of a run over (sample_id, n_tokens), a function of its arguments alone; input order is irrelevant.

    Every optimizer step has `effective_batch` samples over all ranks, except the last of an epoch. Micro batches of
    a step are dealt to the ranks in turn, the longest first; with `max_tokens_per_micro_batch` each holds at most so
    many padded tokens, and every rank gets as many of them as the others where a step has samples enough. Raises
    `InputError` for no samples, a sample longer than `max_length` or than the budget, a step above
    `max_tokens_per_step`, or micro batches that the ranks cannot share.
    """
    _check(samples, training, ranks)
    rows: list[PlanRow] = []
    step = 0
    for epoch in range(1, training.epochs + 1):
        for group in _steps(samples, training.effective_batch, training.seed, epoch):
            step += 1
            if training.max_steps is not None and step > training.max_steps:
                return rows
            planned = list(_planned(_cut(group, training, ranks), ranks, epoch, step))
            _within_budget(planned, training)
            rows.extend(planned)
    return rows


def _steps(samples: Sequence[tuple[str, int]], size: int, seed: int, epoch: int) -> list[list[tuple[str, int]]]:
    """Groups of `size` samples of near-equal length in random order; a partial group comes last."""
    rng = random.Random(f"batch plan {seed} {epoch}")
    shuffled = sorted(samples)
    rng.shuffle(shuffled)
    noisy = [(n * (1 + LENGTH_NOISE * (rng.random() - 0.5)), i) for i, (_, n) in enumerate(shuffled)]
    ordered = [shuffled[i] for _, i in sorted(noisy)]
    full, rest = divmod(len(ordered), size)
    partial_at = rng.randrange(full + 1) * size
    partial = ordered[partial_at : partial_at + rest]
    others = ordered[:partial_at] + ordered[partial_at + rest :]
    groups = [others[i : i + size] for i in range(0, len(others), size)]
    rng.shuffle(groups)
    return groups + ([partial] if partial else [])


def _cut(group: list[Sized], training: TrainingConfiguration, ranks: int) -> list[list[Sized]]:
    """The micro batches of a step, the longest samples first."""
    longest_first = sorted(group, key=lambda sample: (-sample[1], sample[0]))
    budget = training.max_tokens_per_micro_batch
    batches: list[list[Sized]] = []
    while longest_first:
        fits = training.micro_batch if budget is None else min(training.micro_batch, budget // longest_first[0][1])
        batches.append(longest_first[:fits])
        longest_first = longest_first[fits:]
    while budget is not None and len(batches) % ranks and any(len(batch) > 1 for batch in batches):
        heaviest = max(
            (k for k, batch in enumerate(batches) if len(batch) > 1), key=lambda k: len(batches[k]) * batches[k][0][1]
        )
        batch = batches[heaviest]
        batches[heaviest : heaviest + 1] = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
    return batches


def _planned(batches: Sequence[list[Sized]], ranks: int, epoch: int, step: int) -> Iterator[PlanRow]:
    for number, batch in enumerate(batches):
        for position, (sample_id, n_tokens) in enumerate(batch):
            yield PlanRow(epoch, step, number % ranks, number // ranks, position, sample_id, n_tokens, batch[0][1])


def _check(samples: Sequence[tuple[str, int]], training: TrainingConfiguration, ranks: int) -> None:
    if not samples:
        raise InputError("there is no sample to plan", "look at the row ledger of the data stage: what was dropped?")
    if len({sample_id for sample_id, _ in samples}) != len(samples):
        raise InputError("two samples have the same id", "run the data stage again")
    sample_id, longest = max(samples, key=lambda sample: (sample[1], sample[0]))
    if longest > training.max_length:
        over = sum(1 for _, n in samples if n > training.max_length)
        raise InputError(
            f"{over} samples are longer than max_length = {training.max_length}; the longest, {sample_id}, "
            f"has {longest} tokens",
            f"set max_length to {longest} or more, or go back to the data stage with another over_long rule",
        )
    budget = training.max_tokens_per_micro_batch
    if budget is not None and longest > budget:
        raise InputError(
            f"the longest sample, {sample_id}, has {longest} tokens, above max_tokens_per_micro_batch = {budget}",
            f"set max_tokens_per_micro_batch to {longest} or more, or go back to the data stage with a max_length",
        )
    if ranks < 1 or training.gradient_accumulation % ranks:
        raise InputError(
            f"{training.gradient_accumulation} micro batches per step cannot be shared by {ranks} ranks",
            f"make gradient_accumulation a multiple of {ranks}",
        )


def _within_budget(planned: Sequence[PlanRow], training: TrainingConfiguration) -> None:
    padded = sum(row.padded_tokens for row in planned)
    limit = training.max_tokens_per_step
    if limit is not None and padded > limit:
        raise InputError(
            f"step {planned[0].step} would hold {padded} padded tokens, above max_tokens_per_step = {limit}",
            "lower gradient_accumulation or micro_batch (fewer samples per step), or raise max_tokens_per_step",
        )


def write_plan(rows: Sequence[PlanRow], path: Path) -> None:
    """Write `batch_plan.parquet` atomically; equal rows give equal bytes."""
    columns = {field.name: [getattr(row, field.name) for row in rows] for field in SCHEMA}
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns, schema=SCHEMA), buffer)
    write_bytes(path, buffer.getvalue())


def read_plan(path: Path) -> list[PlanRow]:
    """The rows of a plan, in order."""
    table = pq.read_table(path, schema=SCHEMA).to_pydict()
    names = [field.name for field in SCHEMA]
    return [PlanRow(*values) for values in zip(*(table[name] for name in names), strict=True)]
