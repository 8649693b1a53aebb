"""Which held-out questions are answered in full, and in which batches sequences run. Pure and deterministic."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def choose_questions(fault_types: Mapping[str, str], count: int, seed: int) -> list[str]:
    """`count` sample ids of `fault_types` (sample_id to fault type) that cover as many fault types as possible.

    Fault types take turns, in an order drawn by seed; samples without a fault type come last.
    """
    draw = random.Random(seed)
    groups: dict[str, list[str]] = {}
    for sample_id in sorted(fault_types):
        groups.setdefault(fault_types[sample_id], []).append(sample_id)
    unnamed = groups.pop("", [])
    turns = [groups[kind] for kind in sorted(groups)]
    draw.shuffle(turns)
    for group in [*turns, unnamed]:
        draw.shuffle(group)
    chosen: list[str] = []
    depth = 0
    while len(chosen) < count and any(len(group) > depth for group in turns):
        chosen.extend(group[depth] for group in turns if len(group) > depth)
        depth += 1
    return [*chosen, *unnamed][:count]


def batches_by_length(items: Sequence[tuple[int, Item]], size: int) -> list[list[Item]]:
    """Items of (length, item) in batches of `size`, longest first, so that little is padded and memory fails early."""
    ordered = [item for _, item in sorted(items, key=lambda pair: -pair[0])]
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]
