"""A rehearsal: the whole chain with the target model on a small, stratified part of the samples. Which ones. Pure.

What the samples are and how they are split is as in the real run, because the data stage is the same. The plan of the
stress test, which training follows, and the evaluation take the part that is chosen here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specs.errors import InputError
from specs.parameters import TrainingConfiguration

EVALUATED = 8
"""Held-out samples that a rehearsal evaluates at least: an evaluation of one would exercise no batch."""


@dataclass(frozen=True)
class Candidate:
    """A sample to choose from; `stratum` is what the parts must have in proportion."""

    sample_id: str
    stratum: str
    n_tokens: int


def choose(candidates: Sequence[Candidate], share: float, at_least: int = 1) -> list[str]:
    """Ids of a `share` of the samples, `at_least` so many, and the longest one in any case; sorted.

    Every k-th sample in the order of stratum and length: each stratum has its share within one sample, and so has
    every range of lengths within it. The same arguments give the same ids, whatever the order of the candidates.
    """
    ordered = sorted(candidates, key=lambda c: (c.stratum, c.n_tokens, c.sample_id))
    count = min(len(ordered), max(math.ceil(share * len(ordered)), at_least, 1))
    if not ordered:
        return []
    chosen = {ordered[(2 * k + 1) * len(ordered) // (2 * count)].sample_id for k in range(count)}
    longest = max(ordered, key=lambda c: (c.n_tokens, c.sample_id))
    return sorted(chosen | {longest.sample_id})


def read_candidates(samples: Path, split: str) -> list[Candidate]:
    """The samples of one split of `samples.parquet`; a stratum is a kind of sample and a fault type."""
    import pyarrow.parquet as pq

    columns = ["sample_id", "split", "kind", "fault_type", "n_tokens"]
    rows: list[Mapping[str, Any]] = pq.read_table(samples, columns=columns).to_pylist()
    return [
        Candidate(r["sample_id"], f"{r['kind'] or ''}\0{r['fault_type'] or ''}", int(r["n_tokens"]))
        for r in rows
        if r["split"] == split
    ]


def fewest_trained(training: TrainingConfiguration) -> int:
    """Training samples below which a rehearsal would have less than two optimizer steps: one to stop after, and one to
    go on with. Raises `InputError` where the configuration itself allows only one."""
    if training.max_steps == 1:
        raise InputError(
            "a rehearsal stops in the middle and goes on, and max_steps allows one step",
            "raise max_steps of train, or leave it out",
        )
    return 1 if training.epochs > 1 else training.effective_batch + 1


def rehearsed(samples: Path, split: str, share: float, at_least: int = 1) -> frozenset[str]:
    """Ids of the samples of `samples.parquet` that a rehearsal uses."""
    return frozenset(choose(read_candidates(samples, split), share, at_least))
