"""What is trained on: the lengths of the samples, and how many. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple

import numpy
from pydantic import Field

from specs.base import Strict
from tasks.memory.moments import GRANULE

SHARES = (1.0, 0.99, 0.95, 0.9)
"""Of the samples that a length limit keeps whole: the limits that are tried, the first loses nothing."""
WITHOUT_DATA = (4096, 2048, 1024, 512)
"""Lengths that are tried where no data and no length is given."""


class Workload(Strict):
    """`lengths` are tokens of the training samples; empty: not known, every sample is as long as the limit."""

    lengths: tuple[int, ...] = ()
    evaluation_lengths: tuple[int, ...] = ()
    samples: int | None = Field(None, ge=1, description="training samples, where lengths are not known")
    limits: tuple[int, ...] = Field((), description="length limits to try; empty: those of the data")
    effective_batch: int = Field(8, ge=1, description="samples per optimizer step: the invariant")
    epochs: int = Field(1, ge=1)
    max_steps: int | None = Field(None, ge=1, description="optimizer steps at most; null: epochs decide")
    save_minutes: float = Field(30.0, gt=0)
    attention: Literal["sdpa", "eager", "flash"] = "sdpa"

    @property
    def count(self) -> int | None:
        """Training samples."""
        return len(self.lengths) or self.samples

    @property
    def longest(self) -> int | None:
        """The longest sample, where lengths are known."""
        return max(self.lengths, default=None)

    def length_limits(self, positions: int | None) -> list[int]:
        """Length limits, the longest first, none beyond what the data has or the model's positions."""
        if self.limits:
            tried = sorted({*self.limits}, reverse=True)
        elif self.lengths:
            ordered = sorted(self.lengths)
            tried = [ordered[min(len(ordered) - 1, int(len(ordered) * share - 1e-9))] for share in SHARES]
        else:
            tried = list(WITHOUT_DATA)
        rounded = [_up(n) for n in tried]
        within = [n for n in rounded if positions is None or n <= _up(positions)]
        return list(dict.fromkeys(within or rounded[-1:]))

    def left_out(self, positions: int | None) -> list[int]:
        """Length limits that were asked for and are not tried: the model was not made for them."""
        tried = self.length_limits(positions)
        return [n for n in sorted({*self.limits}, reverse=True) if _up(n) not in tried]

    def sums(self, micro_batch: int, limit: int) -> Sums:
        """What one epoch of micro batches of this size holds, samples sorted by length as the batch plan does."""
        if not self.lengths:
            size = -(-(self.samples or self.effective_batch) // micro_batch)
            return Sums(size, float(micro_batch * limit) * size, float(micro_batch * limit**2) * size, 0, limit)
        return _sums(self.lengths, micro_batch, limit)

    def evaluation_sums(self, micro_batch: int, limit: int) -> Sums | None:
        """The same of the held-out samples; null where they are not known."""
        return _sums(self.evaluation_lengths, micro_batch, limit) if self.evaluation_lengths else None

    def steps(self, limit: int) -> int | None:
        """Optimizer steps of the whole run."""
        found = self._of_all_epochs(limit)
        return found if found is None or self.max_steps is None else min(found, self.max_steps)

    def share(self, limit: int) -> float:
        """Of all epochs, what the bound on the steps leaves."""
        steps, whole = self.steps(limit), self._of_all_epochs(limit)
        return steps / whole if steps and whole else 1.0

    def _of_all_epochs(self, limit: int) -> int | None:
        if self.count is None:
            return None
        kept = sum(1 for n in self.lengths if n <= limit) if self.lengths else self.count
        return -(-kept // self.effective_batch) * self.epochs


class Sums(NamedTuple):
    """Micro batches of an epoch, their padded tokens, the sum of samples times squared padded length, samples past the
    limit, and the longest padded length."""

    micro_batches: int
    padded_tokens: float
    padded_squares: float
    over: int
    longest: int


def _up(tokens: int) -> int:
    return -(-tokens // GRANULE) * GRANULE


@cache
def _sums(lengths: Sequence[int], micro_batch: int, limit: int) -> Sums:
    ordered = numpy.sort(numpy.asarray(lengths, dtype=float))[::-1]
    kept = ordered[ordered <= limit]
    widths = kept[::micro_batch]
    sizes = numpy.full(len(widths), float(micro_batch))
    if len(kept) % micro_batch:
        sizes[-1] = len(kept) % micro_batch
    return Sums(
        len(widths),
        float((sizes * widths).sum()),
        float((sizes * widths**2).sum()),
        len(ordered) - len(kept),
        int(widths[0]) if len(widths) else 0,
    )
