"""Every text near one of a few held-out texts, without exception: an exact join by prefixes and bitmaps. Pure.

A text with n shingles that shares the Jaccard similarity t with another has one of its n - ceil(t n) + 1 rarest
shingles in common with as many of the other's (prefix filter; Chaudhuri, Ganti, Kaushik 2006). Of the pairs that are
left, those whose parity bitmaps differ in more bits than t allows elements to differ are out; the rest is compared.
No sketch takes part: what MinHash missed is found here.
"""

from __future__ import annotations

import numpy as np

from tasks.data.shingles import I64, U64, ShingleSets, jaccard, offsets_of, ranges

WORDS = 4
"""64-bit words of a bitmap."""
_EPSILON = 1e-9
_PAIRS_AT_ONCE = 1 << 20


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

    def _prefix(self, sizes: I64) -> I64:
        wanted: I64 = sizes - np.ceil(self.threshold * sizes - _EPSILON).astype(np.int64) + 1
        return wanted

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
        ends = np.cumsum(count)
        mine = bitmaps(sets)
        found: list[I64] = []
        start = 0
        while start < len(row):
            stop = max(start + 1, int(np.searchsorted(ends, (ends[start - 1] if start else 0) + _PAIRS_AT_ONCE)))
            part = slice(start, stop)
            sought = self._posted[ranges(self._offsets[rank[part]], count[part])]
            pairs = np.unique(sought * len(sets) + np.repeat(row[part], count[part]))
            found.append(self._compared(pairs, sets, mine))
            start = stop
        pairs = np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)
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
