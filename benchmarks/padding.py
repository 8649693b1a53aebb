"""Padding on skewed lengths: the batch plan against random order, transformers' length grouping and fixed buckets.

    python benchmarks/padding.py [--seed 0] [--budget 4096] [--out FILE]

4,000 lengths from a lognormal with mean 179, a 95th percentile of 535 and at most 2,048, micro batches of 8. All ways
get the same lengths in the same run. Shuffled: the share of neighbouring batches whose longest sample grows, about
one half when the order of batches is random, and near 0 or 1 when they are sorted.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from specs.parameters import TrainingConfiguration
from tasks.data.batch_plan import plan_batches
from tasks.data.lengths import bucket_edges

COUNT, LONGEST, MICRO_BATCH, BUCKETS = 4000, 2048, 8, 6
MU, SIGMA = 4.757, 0.927
"""Of the lognormal: mean exp(mu + sigma^2 / 2) before the cut at LONGEST, 95th percentile exp(mu + 1.645 sigma)."""
FIXED = tuple(range(64, LONGEST + 1, 64))
"""Buckets every 64 tokens."""

Batches = list[list[int]]


def lengths(seed: int) -> list[int]:
    """The lengths of all samples."""
    rng = random.Random(seed)
    return [min(LONGEST, max(8, round(rng.lognormvariate(MU, SIGMA)))) for _ in range(COUNT)]


def chunks(order: list[int]) -> Batches:
    """An order of lengths cut into micro batches."""
    return [order[i : i + MICRO_BATCH] for i in range(0, len(order), MICRO_BATCH)]


def random_order(values: list[int], seed: int) -> Batches:
    """What a DataLoader with shuffle=True makes."""
    order = values.copy()
    random.Random(seed).shuffle(order)
    return chunks(order)


def grouped_by_length(values: list[int], seed: int) -> Batches:
    """What transformers makes with train_sampling_strategy="group_by_length"."""
    import torch
    from transformers.trainer_pt_utils import get_length_grouped_indices

    generator = torch.Generator().manual_seed(seed)
    indices = get_length_grouped_indices(values, MICRO_BATCH, generator=generator)
    return chunks([values[i] for i in indices])


def fixed_buckets(values: list[int], seed: int, edges: tuple[int, ...] | list[int]) -> Batches:
    """Buckets of fixed edges, shuffled inside, batches of one bucket each, padded to the longest of the batch."""
    rng = random.Random(seed)
    inside: dict[int, list[int]] = {}
    for value in values:
        inside.setdefault(next(e for e in edges if value <= e), []).append(value)
    batches: Batches = []
    for bucket in inside.values():
        rng.shuffle(bucket)
        batches += chunks(bucket)
    rng.shuffle(batches)
    return batches


def planned(values: list[int], seed: int, budget: int | None) -> tuple[Batches, list[int]]:
    """(micro batches of the plan, samples of each optimizer step)."""
    training = TrainingConfiguration(
        max_length=LONGEST,
        micro_batch=MICRO_BATCH,
        gradient_accumulation=1,
        seed=seed,
        max_tokens_per_micro_batch=budget,
    )
    rows = plan_batches([(f"{i:04d}", n) for i, n in enumerate(values)], training)
    batches = [[r.n_tokens for r in rows_] for _, rows_ in groupby(rows, key=lambda r: (r.step, r.micro_batch))]
    return batches, [len(list(rows_)) for _, rows_ in groupby(rows, key=lambda r: r.step)]


def figures(name: str, batches: Batches) -> dict[str, Any]:
    """Padding, the heaviest micro batch, and whether the batches are shuffled."""
    padded = [max(batch) * len(batch) for batch in batches]
    filled = sum(map(sum, batches))
    tops = [max(batch) for batch in batches]
    return {
        "way": name,
        "padding_share": 1 - filled / sum(padded),
        "heaviest_tokens": max(padded),
        "passes": len(batches),
        "growing_neighbours": sum(a < b for a, b in pairwise(tops)) / (len(tops) - 1),
    }


def main() -> None:
    """Measure every way and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=4096, help="padded tokens of a micro batch at most")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    values, seed = lengths(options.seed), options.seed
    print(f"mean {np.mean(values):.0f}, p95 {np.percentile(values, 95):.0f}, max {max(values)}")
    free, _ = planned(values, seed, None)
    bound, steps = planned(values, seed, options.budget)
    assert sorted(n for batch in bound for n in batch) == sorted(values)
    assert set(steps) == {MICRO_BATCH}
    lines = [
        figures("random order", random_order(values, seed)),
        figures("transformers group_by_length", grouped_by_length(values, seed)),
        figures("fixed buckets", fixed_buckets(values, seed, FIXED)),
        figures(f"{BUCKETS} best buckets", fixed_buckets(values, seed, bucket_edges(values, BUCKETS))),
        figures("batch plan", free),
        figures(f"batch plan, budget {options.budget}", bound),
    ]
    print(f"{'':32}{'padding':>9}{'heaviest':>10}{'passes':>8}{'growing':>9}")
    for line in lines:
        print(
            f"{line['way']:32}{line['padding_share']:9.2%}{line['heaviest_tokens']:10}{line['passes']:8}"
            f"{line['growing_neighbours']:9.2f}"
        )
    if options.out:
        options.out.write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
