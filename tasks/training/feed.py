"""What the batch plan says, as tensors: the only source of order. Nothing here draws a random number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from specs.errors import InputError, TrainingError
from tasks.data.batch_plan import PlanRow
from tasks.prompts import Encoded, PromptTemplate
from tasks.training.collate import collate, collate_rows, learnt_tokens
from tasks.turns import columns_of, turns_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class PlannedMicroBatch:
    """Samples of one forward pass, in order, and the length their rows are padded to.

    `places` are (row, first token) of each sample where samples share rows; empty: each has a row of its own.
    """

    number: int
    sample_ids: tuple[str, ...]
    padded_tokens: int
    places: tuple[tuple[int, int], ...] = ()
    rank: int = 0

    @property
    def rows(self) -> int:
        """Rows of its tensors."""
        return 1 + max(row for row, _ in self.places) if self.places else len(self.sample_ids)

    @property
    def tokens(self) -> int:
        """Tokens of its tensors, padding included."""
        return self.rows * self.padded_tokens

    def place(self, position: int) -> tuple[int, int]:
        """(row, first token) of a sample."""
        return self.places[position] if self.places else (position, 0)


@dataclass(frozen=True)
class PlannedStep:
    """One optimizer step over all ranks, its micro batches in the order of the plan.

    `first_row` and `end_row` are row numbers of the plan: resume means start at `first_row`.
    """

    epoch: int
    step: int
    first_row: int
    end_row: int
    micro_batches: tuple[PlannedMicroBatch, ...]

    def of(self, rank: int) -> tuple[PlannedMicroBatch, ...]:
        """The micro batches of one rank; none where a partial step has fewer than there are ranks."""
        return tuple(batch for batch in self.micro_batches if batch.rank == rank)

    @property
    def rounds(self) -> int:
        """Micro batches of the rank that has the most."""
        return 1 + max(batch.number for batch in self.micro_batches)


def group_steps(rows: Sequence[PlanRow], ranks: int = 1) -> list[PlannedStep]:
    """The steps of a plan for so many ranks, in the order of its rows.

    Raises `TrainingError` when steps are not 1, 2, 3, ..., when a step's micro batches are not 0, 1, 2, ... with the
    ranks in turn, or when it was made for another number of ranks.
    """
    steps = []
    numbered = list(enumerate(rows))
    for expected, ((epoch, step), group) in enumerate(groupby(numbered, lambda r: (r[1].epoch, r[1].step)), start=1):
        members = list(group)
        batches = []
        for (number, rank), batch in groupby((row for _, row in members), lambda row: (row.micro_batch, row.rank)):
            planned = list(batch)
            if [row.position for row in planned] != list(range(len(planned))):
                raise TrainingError(f"batch plan: positions of step {step}, micro batch {number} are out of order")
            batches.append(_micro_batch(number, rank, planned))
        if step != expected or [(b.number, b.rank) for b in batches] != [divmod(k, ranks) for k in range(len(batches))]:
            raise TrainingError(
                f"batch plan: expected step {expected} with its micro batches in order, dealt to {ranks} ranks in "
                f"turn, found step {step}",
                "make the plan again by the stress test; a plan is never edited by hand",
            )
        steps.append(PlannedStep(epoch, step, members[0][0], members[-1][0] + 1, tuple(batches)))
    if not steps:
        raise TrainingError("the batch plan is empty", "run the stress test again")
    return steps


def _micro_batch(number: int, rank: int, planned: Sequence[PlanRow]) -> PlannedMicroBatch:
    packed = any(row.start for row in planned)
    return PlannedMicroBatch(
        number,
        tuple(row.sample_id for row in planned),
        max(row.start + row.padded_tokens for row in planned),
        tuple((row.row, row.start) for row in planned) if packed else (),
        rank,
    )


@dataclass(frozen=True)
class MicroBatch:
    """A micro batch as fed: its tensors, and how many of its tokens are real, padded and learnt."""

    planned: PlannedMicroBatch
    tensors: dict[str, torch.Tensor]
    tokens: int
    padded_tokens: int
    learnt_tokens: int


@dataclass(frozen=True)
class Step:
    """An optimizer step as fed to one rank: its own micro batches."""

    planned: PlannedStep
    micro_batches: tuple[MicroBatch, ...]

    @property
    def learnt_tokens(self) -> int:
        """Learnt tokens of this rank; their sum over all ranks is what the step's loss is divided by."""
        return sum(batch.learnt_tokens for batch in self.micro_batches)


class Feed:
    """The planned steps of a rank over encoded samples. It has no length on purpose: the plan says when it ends."""

    def __init__(
        self, steps: Sequence[PlannedStep], samples: dict[str, Encoded], pad_id: int, start: int = 0, rank: int = 0
    ) -> None:
        self.steps = steps
        self.samples = samples
        self.pad_id = pad_id
        self.start = start
        self.rank = rank

    def __iter__(self) -> Iterator[Step]:
        for planned in self.steps[self.start :]:
            yield Step(planned, tuple(self.batch(b) for b in planned.of(self.rank)))

    def batch(self, planned: PlannedMicroBatch) -> MicroBatch:
        """The tensors of one planned micro batch."""
        samples = [self.samples[i] for i in planned.sample_ids]
        if planned.places:
            tensors = collate_rows(samples, planned.places, planned.padded_tokens, self.pad_id)
        else:
            tensors = collate(samples, planned.padded_tokens, self.pad_id)
        return MicroBatch(
            planned,
            tensors,
            sum(len(s.input_ids) for s in samples),
            planned.tokens,
            sum(learnt_tokens(s) for s in samples),
        )

    def batches(self, sample_ids: Sequence[str], size: int, most_tokens: int | None = None) -> Iterator[MicroBatch]:
        """Named samples in batches of at most `size` samples and `most_tokens` padded tokens (null: no limit), the
        longest first, each padded to its longest. A sample that is longer by itself has a batch of its own."""
        ordered = sorted(sample_ids, key=lambda i: (-len(self.samples[i].input_ids), i))
        start = number = 0
        while start < len(ordered):
            longest = len(self.samples[ordered[start]].input_ids)
            count = size if most_tokens is None else max(1, min(size, most_tokens // longest))
            yield self.batch(PlannedMicroBatch(number, tuple(ordered[start : start + count]), longest))
            start, number = start + count, number + 1

    @property
    def most_padded_tokens(self) -> int:
        """Padded tokens of the largest micro batch of the plan."""
        return max(b.tokens for step in self.steps for b in step.micro_batches)


def read_samples(path: Path, wanted: Iterable[str], template: PromptTemplate) -> dict[str, Encoded]:
    """The named samples of `samples.parquet`, encoded. Raises `InputError` when one is not there."""
    import pyarrow.parquet as pq

    ids = set(wanted)
    columns = columns_of(["sample_id", "prompt", "answer"], pq.read_schema(path).names)
    rows = (row for row in pq.read_table(path, columns=columns).to_pylist() if row["sample_id"] in ids)
    found = {row["sample_id"]: template.encode(row["prompt"], row["answer"], turns_of(row)) for row in rows}
    missing = sorted(ids - found.keys())
    if missing:
        raise InputError(
            f"{len(missing)} planned samples are not in {path.name}, the first {missing[0]}",
            "plan and samples belong to different attempts: run the stress test again",
        )
    return found


def check_lengths(rows: Sequence[PlanRow], samples: dict[str, Encoded]) -> None:
    """Raise `TrainingError` when a sample's tokens are not what was planned, or nothing of it is learnt."""
    wrong = [r for r in rows if len(samples[r.sample_id].input_ids) != r.n_tokens or r.padded_tokens < r.n_tokens]
    if wrong:
        row = wrong[0]
        raise TrainingError(
            f"{len(wrong)} planned samples have another length now; {row.sample_id} was planned with {row.n_tokens} "
            f"tokens and has {len(samples[row.sample_id].input_ids)}",
            "the tokenizer or the template is not the one of the plan: run the data stage again",
        )
    silent = [r.sample_id for r in rows if learnt_tokens(samples[r.sample_id]) < 1]
    if silent:
        raise TrainingError(f"sample {silent[0]} has no token to learn", "it has no answer: look at the row ledger")
