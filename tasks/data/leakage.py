"""Every text near one of a few held-out texts, without exception: an exact join by prefixes and bitmaps. Pure.

Two texts that share at least o shingles have the first l of these in common among their first n - o + l shingles in
any order of all shingles (prefix filter; Chaudhuri, Ganti, Kaushik 2006, for l = 1; Wang, Li, Feng 2012, for more).
Rarest first, few texts share as many by chance. Of the pairs that are left, those whose parity bitmaps differ in more
bits than the threshold allows elements to differ are out; the rest is compared. No sketch takes part: what MinHash
missed is found here.
"""

from __future__ import annotations

import numpy as np

from tasks.data.shingles import I64, U64, ShingleSets, jaccard, offsets_of, ranges

WORDS = 4
"""64-bit words of a bitmap."""
_EPSILON = 1e-9
SHARED = 16
"""Shingles that two texts must share in their prefixes: more make longer prefixes, of less rare shingles."""
_COUNTERS = 1 << 21
"""Pairs that are counted at once."""


class NearIndex:
    """Texts to look for, by the rarest of their shingles."""

    def __init__(self, texts: ShingleSets, threshold: float) -> None:
        self.texts, self.threshold = texts, threshold
        self.vocabulary, counts = np.unique(texts.values, return_counts=True)
        rank = np.empty(len(counts), np.int64)
        rank[np.argsort(counts, kind="stable")] = np.arange(len(counts))
        self._rank = rank
        row, ranks, position = self._ordered(texts)
        wanted = position < self._prefix(texts.sizes())[row]
        order = np.argsort(ranks[wanted], kind="stable")
        self._posted = row[wanted][order]
        self._offsets = offsets_of(np.bincount(ranks[wanted], minlength=len(counts)))
        self._bitmaps = bitmaps(texts)

    def _least(self, sizes: I64) -> I64:
        """Shingles that a similar text shares at least with one of so many."""
        least: I64 = np.ceil(self.threshold * sizes - _EPSILON).astype(np.int64)
        return least

    def _prefix(self, sizes: I64) -> I64:
        return sizes - self._least(sizes) + SHARED

    def _ordered(self, sets: ShingleSets) -> tuple[I64, I64, I64]:
        """(row, rank, position in the row) of the shingles that the vocabulary has, rarest first within a row.

        Shingles that it lacks are rarer than all others: positions begin after them.
        """
        place = np.searchsorted(self.vocabulary, sets.values)
        place[place == len(self.vocabulary)] = 0
        known = self.vocabulary[place] == sets.values if len(self.vocabulary) else np.zeros(len(place), np.bool_)
        row = np.repeat(np.arange(len(sets)), sets.sizes())[known]
        span = len(self.vocabulary) + 1
        key = row * span + self._rank[place[known]]
        key.sort()
        row, rank = np.divmod(key, span)
        here = np.bincount(row, minlength=len(sets))
        position = np.arange(len(row)) - np.repeat(offsets_of(here)[:-1], here) + (sets.sizes() - here)[row]
        return row, rank, position

    def near(self, sets: ShingleSets) -> tuple[I64, I64]:
        """(index of the text looked for, index in `sets`) of all pairs at or above the threshold, sorted."""
        row, rank, position = self._ordered(sets)
        wanted = position < self._prefix(sets.sizes())[row]
        row, rank = row[wanted], rank[wanted]
        count = self._offsets[rank + 1] - self._offsets[rank]
        needed = np.minimum(SHARED, self._least(sets.sizes()))
        mine = bitmaps(sets)
        found = [np.zeros(0, np.int64)]
        step = max(1, _COUNTERS // max(1, len(self.texts)))
        for first in range(0, len(sets), step):
            low, high = np.searchsorted(row, [first, first + step])
            sought = self._posted[ranges(self._offsets[rank[low:high]], count[low:high])]
            pair = np.repeat(row[low:high] - first, count[low:high]) * len(self.texts) + sought
            shared = np.bincount(pair, minlength=step * len(self.texts)).reshape(step, len(self.texts))
            b, a = np.nonzero(shared[: len(sets) - first] >= needed[first : first + step, None])
            found.append(self._compared(a * len(sets) + b + first, sets, mine))
        pairs = np.sort(np.concatenate(found))
        return pairs // max(1, len(sets)), pairs % max(1, len(sets))

    def _compared(self, pairs: I64, sets: ShingleSets, mine: U64) -> I64:
        """The pairs that reach the threshold."""
        a, b = pairs // len(sets), pairs % len(sets)
        large, small = self.texts.sizes()[a], sets.sizes()[b]
        fits = np.minimum(large, small) >= self.threshold * np.maximum(large, small) - _EPSILON
        pairs, a, b = pairs[fits], a[fits], b[fits]
        differing = np.bitwise_count(self._bitmaps[a] ^ mine[b]).sum(1, dtype=np.int64)
        allowed = (1 - self.threshold) / (1 + self.threshold) * (self.texts.sizes()[a] + sets.sizes()[b])
        fits = differing <= allowed + _EPSILON
        pairs, a, b = pairs[fits], a[fits], b[fits]
        return pairs[jaccard(self.texts, a, sets, b) >= self.threshold]


def bitmaps(sets: ShingleSets) -> U64:
    """256 bits of each set, each the parity of the shingles that fall on it.

    Two bitmaps differ in at most as many bits as the sets differ in elements.
    """
    result = np.zeros((len(sets), WORDS), np.uint64)
    filled = sets.sizes() > 0
    if filled.any():
        bit = np.uint64(1) << (sets.values & np.uint64(63))
        word = (sets.values >> np.uint64(6)) % np.uint64(WORDS)
        for number in range(WORDS):
            chosen = np.where(word == number, bit, np.uint64(0))
            result[filled, number] = np.bitwise_xor.reduceat(chosen, sets.offsets[:-1][filled])
    return result
