"""Similar pairs among many records, star clusters and connected components. Pure.

Records that share a band are a bucket. The first record of a bucket leads it; every other is compared with its
leader, and those that are not similar to it are compared with the first among themselves, until none is left. So a
bucket of a thousand copies costs a thousand comparisons, not half a million, and every record of a bucket is similar
to a leader of it or was compared with all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import xxhash

from tasks.data.shingles import F64, I64, U64, ShingleSets, jaccard, mixed, shingle_sets
from tasks.data.sketches import BANDS, Sketches, promising, sketches_of
from tasks.data.teaching import Teaching

SetsOf = Callable[[I64], ShingleSets]
"""The shingle sets of rows, in the order given."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Similar rows: `a[i]` leads `b[i]`, and their exact Jaccard similarity."""

    a: I64
    b: I64
    similarity: F64

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True, slots=True)
class _Entries:
    """Rows in buckets, ordered by bucket and then by rank."""

    bucket: I64
    row: I64

    def where(self, chosen: I64) -> _Entries:
        return _Entries(self.bucket[chosen], self.row[chosen])

    def shared(self) -> _Entries:
        """Without the buckets that hold one row only."""
        if not len(self.row):
            return self
        _, count = _runs(self.bucket)
        return self.where(np.flatnonzero(np.repeat(count > 1, count)))


def _runs(ordered: I64) -> tuple[I64, I64]:
    """(start, length) of the runs of equal values."""
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return starts, np.diff(np.append(starts, len(ordered)))


def similar_pairs(
    sketches: Sketches,
    ranked: I64,
    group: U64 | None,
    threshold: float,
    sets_of: SetsOf,
    teaching: Teaching | None = None,
) -> Pairs:
    """Leaders and the rows that are similar to them, among `ranked` rows (most important first).

    With `group`, only rows of an equal group are compared; with `teaching`, only pairs that it allows are given, and
    rows that their leader refuses are compared once more, with those that it refuses for something similar. Each pair
    is given once.
    """
    entries = _entries(sketches, ranked, group)
    involved = np.unique(entries.row)
    if not len(involved):
        return Pairs(involved, involved, np.zeros(0))
    search = _Search(sketches, involved, sets_of(involved), threshold, teaching)
    leader, row = search.led(entries)
    if teaching is not None and len(row):
        search.led(_refused_alike(leader, row, ranked, teaching))
    return _each_once(search.found)


@dataclass(slots=True)
class _Search:
    """Rows compared with the leaders of their buckets; `found` are the pairs."""

    sketches: Sketches
    involved: I64
    sets: ShingleSets
    threshold: float
    teaching: Teaching | None
    found: list[Pairs] = field(default_factory=list)

    def led(self, entries: _Entries) -> tuple[I64, I64]:
        """Look through buckets; (leader, row) of similar rows that may not go into their leader, each pair once."""
        span = int(self.involved[-1]) + 1
        refused = [np.zeros(0, np.int64)]
        while len(entries.row):
            starts, count = _runs(entries.bucket)
            leader = np.repeat(entries.row[starts], count)
            member = np.ones(len(leader), np.bool_)
            member[starts] = False
            index = np.flatnonzero(member)
            a, b = leader[index], entries.row[index]
            similarity = _similarities(a, b, self.sketches, self.involved, self.sets, self.threshold)
            near = similarity >= self.threshold
            given = near.copy()
            if self.teaching is not None:
                given[near] = self.teaching.may(a[near], b[near])
                refused.append(a[near & ~given] * span + b[near & ~given])
            self.found.append(Pairs(a[given], b[given], similarity[given]))
            entries = entries.where(index[~near]).shared()
        return np.divmod(np.unique(np.concatenate(refused)), span)


def _refused_alike(leader: I64, row: I64, ranked: I64, teaching: Teaching) -> _Entries:
    """Rows that one leader refuses, in buckets by what they teach and it does not: alike as a whole, or one answer.

    A thousand rows under one long question are all similar, so that they share one bucket, and few tries would find
    few of the copies among them. What is new in their answers tells them apart.
    """
    rank = np.empty(int(ranked.max()) + 1, np.int64)
    rank[ranked] = np.arange(len(ranked))
    order = np.argsort(rank[row], kind="stable")
    leader, row = leader[order], row[order]
    new = teaching.lacking(leader, row)
    keys, place = _answer_keys(new)
    alike = _entries(sketches_of(shingle_sets(["\n".join(answers) for answers in new])), np.arange(len(row)), leader)
    _, bucket = np.unique(mixed(keys ^ mixed(leader[place].astype(np.uint64))), return_inverse=True)
    by_answer = np.lexsort((place, bucket))
    equal = _Entries(bucket[by_answer] + int(alike.bucket.max(initial=0)) + 1, place[by_answer]).shared()
    return _Entries(np.concatenate([alike.bucket, equal.bucket]), row[np.concatenate([alike.row, equal.row])])


def _answer_keys(answers: Sequence[Sequence[str]]) -> tuple[U64, I64]:
    """A hash of each answer, and the number of its list."""
    hashed = (xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass")) for found in answers for text in found)
    keys = np.fromiter(hashed, np.uint64, sum(map(len, answers)))
    return keys, np.repeat(np.arange(len(answers)), [len(found) for found in answers])


def _entries(sketches: Sketches, ranked: I64, group: U64 | I64 | None) -> _Entries:
    """The rows that share a band with another row of an equal group, band by band."""
    buckets: list[I64] = []
    rows: list[I64] = []
    for band in range(BANDS):
        keys = sketches.bands[ranked, band]
        if group is not None:
            keys = mixed(keys ^ mixed(group[ranked].astype(np.uint64)))
        order = np.argsort(keys)  # five times as fast as a stable sort; the few rows that share are put in order below
        number = np.cumsum(np.concatenate([[False], keys[order][1:] != keys[order][:-1]])) if len(order) else order
        entries = _Entries(number, order).shared()
        span = len(ranked) + 1
        bucket, place = np.divmod(np.sort(entries.bucket * span + entries.row), span)
        buckets.append(bucket + band * span)
        rows.append(ranked[place])
    return _Entries(np.concatenate(buckets), np.concatenate(rows))


def _similarities(a: I64, b: I64, sketches: Sketches, involved: I64, sets: ShingleSets, threshold: float) -> F64:
    """The similarity of each pair; 0 where the signatures rule the threshold out. Equal pairs are compared once."""
    key = a * (int(involved[-1]) + 1) + b
    unique, back = np.unique(key, return_inverse=True)
    first, second = np.divmod(unique, int(involved[-1]) + 1)
    result = np.zeros(len(unique))
    likely = np.flatnonzero(promising(sketches, first, second, threshold))
    left, right = np.searchsorted(involved, first[likely]), np.searchsorted(involved, second[likely])
    result[likely] = jaccard(sets, left, sets, right)
    return result[back]


def _each_once(found: Sequence[Pairs]) -> Pairs:
    a, b = np.concatenate([p.a for p in found]), np.concatenate([p.b for p in found])
    similarity = np.concatenate([p.similarity for p in found])
    order = np.lexsort((b, a))
    a, b, similarity = a[order], b[order], similarity[order]
    first = np.ones(len(a), np.bool_)
    first[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    return Pairs(a[first], b[first], similarity[first])


def star_clusters(
    sketches: Sketches, ranked: I64, group: U64, threshold: float, sets_of: SetsOf, teaching: Teaching | None = None
) -> dict[int, int]:
    """Each row that goes, with the row that stays instead: one that it is itself similar to, of an equal group.

    A row goes only into one before it in `ranked`, the most similar; no chain of similar rows removes its ends. It
    is repeated among the rows that stay, until none of them has a similar one before it. `teaching` says which row may
    go into which.
    """
    rank = np.empty(int(ranked.max()) + 1 if len(ranked) else 0, np.int64)
    rank[ranked] = np.arange(len(ranked))
    into: dict[int, int] = {}
    while True:
        here = ranked[~np.isin(ranked, np.fromiter(into, np.int64, len(into)))]
        gone = _absorbed(similar_pairs(sketches, here, group, threshold, sets_of, teaching), rank)
        if not gone:
            return into
        into.update(gone)
        for row in [row for row, centre in into.items() if centre in into]:
            del into[row]  # its centre went after all: it is compared again


def _absorbed(pairs: Pairs, rank: I64) -> dict[int, int]:
    order = np.lexsort((rank[pairs.a], -pairs.similarity, rank[pairs.b]))
    gone: dict[int, int] = {}
    for member, leader in zip(pairs.b[order].tolist(), pairs.a[order].tolist(), strict=True):
        if member not in gone and leader not in gone:
            gone[member] = leader
    return gone


def components(count: int, a: I64, b: I64) -> I64:
    """The smallest member of the connected component of each of `count` things that pairs (a, b) connect."""
    parent = list(range(count))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j in zip(a.tolist(), b.tolist(), strict=True):
        first, second = root(i), root(j)
        if first != second:
            parent[max(first, second)] = min(first, second)
    return np.fromiter((root(i) for i in range(count)), np.int64, count)
