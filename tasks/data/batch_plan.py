"""The batch plan: the full, ordered list of micro batches of a run, made before training starts. Pure.

Steps come first: an epoch's samples are ordered by length (with a little noise, so that epochs differ), cut into
groups of `effective_batch`, and the groups are shuffled. Only then is each step cut into micro batches, so that
1 x 8 and 8 x 1 hold the same samples in every optimizer step. With a token budget, a step of long samples is cut into
more and smaller micro batches; with packing, samples of a step share rows, so that it needs fewer; filled micro batches
take as many short samples as hold no more tokens than the longest ones do. The samples of the step stay the same.
"""

from __future__ import annotations

import heapq
import io
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from specs.errors import InputError
from specs.files import write_bytes
from specs.parameters import TrainingConfiguration
from tasks.data.objectives import Sized, epoch_samples

LENGTH_NOISE = 0.004
"""Relative width of the noise on lengths: other neighbours in every epoch, for well under 1 % of padding."""


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One sample in one micro batch. `epoch` and `step` from 1, `step` over the whole run, the others from 0.

    The sample begins at token `start` of row `row`. `padded_tokens` are the tokens that it takes of the row, the
    padding after the row's last sample with it: their sum is what a micro batch holds.
    """

    epoch: int
    step: int
    rank: int
    micro_batch: int
    position: int
    sample_id: str
    n_tokens: int
    padded_tokens: int
    row: int = 0
    start: int = 0


Row = list[Sized]
"""Samples that stand one after the other in a row; one without packing."""

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
        ("row", pa.int32()),
        ("start", pa.int32()),
    ]
)
ADDED = ("row", "start")
"""Columns that plans of earlier versions lack: there every sample has a row of its own."""


def plan_batches(
    samples: Sequence[Sized],
    training: TrainingConfiguration,
    ranks: int | None = None,
    plain: Collection[str] = (),
) -> list[PlanRow]:
    """The plan of a run over (sample_id, n_tokens), a function of its arguments alone; input order is irrelevant.

    Every optimizer step has `effective_batch` samples over all ranks, except the last of an epoch. Micro batches of
    a step are dealt to the ranks in turn, the longest first; with `max_tokens_per_micro_batch` each holds at most so
    many padded tokens, and every rank gets as many of them as the others where a step has samples enough. With
    `plain_text_share` an epoch takes that share of plain text (`plain` are its ids; see `objectives.py`). With
    `packing` a micro batch has `micro_batch` rows of at most `max_length` tokens, each of as many samples as fit. With
    `fill_micro_batches` it has more than `micro_batch` rows where they are short: as many as keep it within the budget,
    without one within `micro_batch` times the longest sample.
    Raises `InputError` for no samples, a sample longer than `max_length` or than the budget, a step above
    `max_tokens_per_step`, micro batches that the ranks cannot share, or packing without two samples that fit.
    """
    ranks = training.ranks if ranks is None else ranks
    _check(samples, training, ranks)
    rows: list[PlanRow] = []
    longest = max(n_tokens for _, n_tokens in samples)
    for epoch, step, group in _all_steps(samples, training, plain):
        planned = list(_planned(_cut(group, training, ranks, longest), ranks, epoch, step))
        _within_budget(planned, training)
        rows.extend(planned)
    if training.packing and not any(row.start for row in rows):
        raise InputError(
            f"packing would change nothing: no two samples of a step fit into a row of {_row_limit(training)} tokens",
            "set packing: false, or raise max_length (packing fills rows up to it) or the samples per step "
            "(micro_batch, gradient_accumulation)",
        )
    return rows


def _all_steps(
    samples: Sequence[Sized], training: TrainingConfiguration, plain: Collection[str]
) -> Iterator[tuple[int, int, list[Sized]]]:
    """(epoch, step, its samples), up to `max_steps`."""
    step = 0
    for epoch in range(1, training.epochs + 1):
        chosen = epoch_samples(samples, plain, training, epoch)
        for group in _steps(chosen, training.effective_batch, training.seed, epoch):
            step += 1
            if training.max_steps is not None and step > training.max_steps:
                return
            yield epoch, step, group


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


def _cut(group: Sequence[Sized], training: TrainingConfiguration, ranks: int, longest: int) -> list[list[Row]]:
    """The micro batches of a step, the longest rows first."""
    rest = _rows(group, training)
    budget = fill_limit(training, longest)
    batches: list[list[Row]] = []
    while rest:
        room = len(rest) if budget is None else budget // _width(rest)
        fits = room if training.fill_micro_batches else min(training.micro_batch, room)
        batches.append(rest[:fits])
        rest = rest[fits:]
    if budget is not None or training.packing:
        _share(batches, ranks)
    return batches


def fill_limit(training: TrainingConfiguration, longest: int) -> int | None:
    """Padded tokens that a micro batch may hold, where the longest planned sample has so many; null: only rows count.

    Rows of packed samples are as long as `max_length`, whatever the longest sample is.
    """
    if training.max_tokens_per_micro_batch is not None or not training.fill_micro_batches:
        return training.max_tokens_per_micro_batch
    return training.micro_batch * (training.max_length if training.packing else longest)


def _rows(group: Sequence[Sized], training: TrainingConfiguration) -> list[Row]:
    """The rows of a step, the longest first.

    Packing needs as many as first fit decreasing does: the longest samples first, each into the first row that has
    room (at most 11/9 of the fewest possible, and one more). So many rows of about the same length are filled then,
    because rows of one micro batch are padded to the longest.
    """
    longest_first = sorted(group, key=lambda sample: (-sample[1], sample[0]))
    if not training.packing:
        return [[sample] for sample in longest_first]
    limit = _row_limit(training)
    filled = _first_fit(longest_first, limit)
    even = _even(longest_first, len(filled))
    rows = even if _width(even) <= limit else filled
    return sorted(rows, key=lambda row: (-_tokens(row), row[0][0]))


def _first_fit(longest_first: Sequence[Sized], limit: int) -> list[Row]:
    rows: list[Row] = []
    room: list[int] = []
    for sample in longest_first:
        found = next((k for k, free in enumerate(room) if free >= sample[1]), None)
        if found is None:
            rows.append([sample])
            room.append(limit - sample[1])
        else:
            rows[found].append(sample)
            room[found] -= sample[1]
    return rows


def _even(longest_first: Sequence[Sized], count: int) -> list[Row]:
    """So many rows, each sample in the row that is the shortest so far."""
    rows: list[Row] = [[] for _ in range(count)]
    shortest = [(0, k) for k in range(count)]
    for sample in longest_first:
        tokens, k = heapq.heappop(shortest)
        rows[k].append(sample)
        heapq.heappush(shortest, (tokens + sample[1], k))
    return rows


def _row_limit(training: TrainingConfiguration) -> int:
    """Tokens of a packed row at most."""
    budget = training.max_tokens_per_micro_batch
    return training.max_length if budget is None else min(training.max_length, budget)


def _tokens(row: Row) -> int:
    return sum(n_tokens for _, n_tokens in row)


def _width(batch: Sequence[Row]) -> int:
    """What the rows of a micro batch are padded to."""
    return max(_tokens(row) for row in batch)


def _share(batches: list[list[Row]], ranks: int) -> None:
    """Divide the heaviest micro batches until every rank has as many as the others: by rows, then by samples."""

    def divisible(batch: list[Row]) -> bool:
        return len(batch) > 1 or len(batch[0]) > 1

    while len(batches) % ranks and any(map(divisible, batches)):
        candidates = (k for k, batch in enumerate(batches) if divisible(batch))
        heaviest = max(candidates, key=lambda k: len(batches[k]) * _width(batches[k]))
        batches[heaviest : heaviest + 1] = _halves(batches[heaviest])


def _halves(batch: list[Row]) -> list[list[Row]]:
    if len(batch) > 1:
        return [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
    samples = batch[0]
    return [[samples[: len(samples) // 2]], [samples[len(samples) // 2 :]]]


def _planned(batches: Sequence[list[Row]], ranks: int, epoch: int, step: int) -> Iterator[PlanRow]:
    for number, batch in enumerate(batches):
        position, width = 0, _width(batch)
        for row, samples in enumerate(batch):
            start = 0
            for sample_id, n_tokens in samples:
                taken = n_tokens if sample_id != samples[-1][0] else width - start
                at = (number % ranks, number // ranks, position)
                yield PlanRow(epoch, step, *at, sample_id, n_tokens, taken, row, start)
                position, start = position + 1, start + n_tokens


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
    found = pq.read_table(path)
    if not set(ADDED) & set(found.column_names):
        starts = pa.array([0] * len(found), pa.int32())
        found = found.append_column("row", found["position"]).append_column("start", starts)
    table = found.select(SCHEMA.names).cast(SCHEMA).to_pydict()
    return [PlanRow(*values) for values in zip(*(table[name] for name in SCHEMA.names), strict=True)]
