"""Train and held-out samples: whole components, spread over fault types and machines, or the newest. Pure."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.data.shingles import F64, I64, offsets_of

MAX_COMPONENT_SHARE = 0.25
"""A component larger than this share of the held-out set goes to train: it would make evaluation about one thing."""


@dataclass(frozen=True, slots=True)
class Members:
    """The samples of each component: `order[offsets[k]:offsets[k + 1]]` are those of the k-th one."""

    order: I64
    offsets: I64

    @classmethod
    def of(cls, component: I64) -> Members:
        """Components by ascending number."""
        _, count = np.unique(component, return_counts=True)
        return cls(np.argsort(component, kind="stable"), offsets_of(count))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def sizes(self) -> I64:
        """Samples of each component."""
        return np.diff(self.offsets)

    def __getitem__(self, number: int) -> list[int]:
        members: list[int] = self.order[self.offsets[number] : self.offsets[number + 1]].tolist()
        return members


def held_out_target(count: int, share: float, at_most: int | None) -> int:
    """How many of `count` samples should be held out."""
    target = round(share * count)
    return target if at_most is None else min(target, at_most)


def choose_held_out(
    component: I64,
    fault_type: Sequence[str],
    device_model: Sequence[str],
    target: int,
    seed: int,
    barred: Collection[int] = (),
) -> set[int]:
    """Components to hold out, together at most `target` samples, spread over fault types and device models.

    Every fault type keeps at least one component in train; a type with one component only is never held out, and
    nothing of `barred` is.
    """
    members = Members.of(component)
    order = _in_turn(members, [f"{t}\x1f{d}" for t, d in zip(fault_type, device_model, strict=True)], seed)
    return _taken(members, component, order, fault_type, target, barred)


def choose_newest(
    component: I64, fault_type: Sequence[str], time: F64, target: int, barred: Collection[int] = ()
) -> set[int]:
    """Components to hold out, the newest first, together at most `target` samples.

    A component is as old as its oldest sample, so that nothing held out is older than what it is like. Samples
    without a time (NaN) are never held out, nor is anything of `barred`.
    """
    members = Members.of(component)
    oldest = np.minimum.reduceat(np.where(np.isnan(time), -np.inf, time)[members.order], members.offsets[:-1])
    order = [k for k in np.argsort(-oldest, kind="stable").tolist() if oldest[k] > -np.inf]
    return _taken(members, component, order, fault_type, target, barred)


def _taken(
    members: Members,
    component: I64,
    order: Sequence[int],
    fault_type: Sequence[str],
    target: int,
    barred: Collection[int],
) -> set[int]:
    in_train: dict[str, int] = defaultdict(int)
    for _, name in {(c, t) for c, t in zip(component.tolist(), fault_type, strict=True) if t}:
        in_train[name] += 1
    sizes = members.sizes()
    usual = int(np.median(sizes)) if len(sizes) else 1  # or of a small set of families nothing would be held out
    too_large = max(1, int(MAX_COMPONENT_SHARE * target), min(usual, target // 2))
    chosen: set[int] = set()
    held = 0
    for k in order:
        if held >= target:
            break
        if held + sizes[k] > target or sizes[k] > too_large:
            continue
        rows = members[k]
        if int(component[rows[0]]) in barred:
            continue
        types = {fault_type[i] for i in rows} - {""}
        if any(in_train[t] < 2 for t in types):
            continue
        chosen.add(int(component[rows[0]]))
        held += len(rows)
        for t in types:
            in_train[t] -= 1
    return chosen


def _in_turn(members: Members, stratum: Sequence[str], seed: int) -> list[int]:
    """Components in the order in which they are tried: seeded, each stratum spread evenly over the whole order.

    A component belongs to the stratum of its first sample.
    """
    rng = random.Random(f"split {seed}")
    strata: dict[str, list[int]] = defaultdict(list)
    for k, first in enumerate(members.order[members.offsets[:-1]].tolist()):
        strata[stratum[first]].append(k)
    return [k for _, k in sorted(_placed(strata, rng))]


def _placed(strata: dict[str, list[int]], rng: random.Random) -> Iterator[tuple[float, int]]:
    for name in sorted(strata):
        order = strata[name]
        rng.shuffle(order)
        offset = rng.random()
        yield from (((position + offset) / len(order), k) for position, k in enumerate(order))
