"""Train and held-out samples: whole components, spread over fault types, the same for the same seed. Pure."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence

MAX_COMPONENT_SHARE = 0.25
"""A component larger than this share of the held-out set goes to train: it would make evaluation about one thing."""


def choose_held_out(component: Sequence[int], fault_type: Sequence[str], share: float, seed: int) -> set[int]:
    """Components to hold out, together close to `share` of the samples.

    Components are drawn fault type by fault type in turn. Every fault type keeps at least one component in train;
    a type with one component only is never held out.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for i, c in enumerate(component):
        members[c].append(i)
    types = {c: {fault_type[i] for i in rows} - {""} for c, rows in members.items()}
    in_train = Counter(t for kinds in types.values() for t in kinds)
    target = round(share * len(component))
    too_large = max(1, int(MAX_COMPONENT_SHARE * target))
    rng = random.Random(f"split {seed}")
    chosen: set[int] = set()
    held = 0
    for c in _in_turn(members, fault_type, rng):
        size = len(members[c])
        if held + size > target or size > too_large or any(in_train[t] < 2 for t in types[c]):
            continue
        chosen.add(c)
        held += size
        in_train.subtract(types[c])
    return chosen


def _in_turn(members: dict[int, list[int]], fault_type: Sequence[str], rng: random.Random) -> list[int]:
    """Components in the order in which they are tried: seeded, each stratum spread evenly over the whole order."""
    strata: dict[str, list[int]] = defaultdict(list)
    for c in sorted(members):
        counts = Counter(fault_type[i] for i in members[c])
        strata[min(counts, key=lambda t: (-counts[t], t))].append(c)
    placed: list[tuple[float, int]] = []
    for stratum in sorted(strata):
        order = strata[stratum]
        rng.shuffle(order)
        offset = rng.random()
        placed.extend(((position + offset) / len(order), c) for position, c in enumerate(order))
    return [c for _, c in sorted(placed)]
