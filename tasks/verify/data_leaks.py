"""Held-out samples that are near a training sample, over all pairs: nothing is sampled, sketched or left out.

Texts are compared by their sets of grams. How many grams two texts share is at most the product of how many grams
each has in every one of some buckets, summed over the buckets: a matrix product says for a few thousand texts at once
which pairs can reach the threshold at all, and these few are compared as sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from tasks.verify.data_texts import THRESHOLD, grams_of, similarity

Counts = npt.NDArray[np.float32]
BUCKETS_PER_GRAM = 3
"""More buckets let fewer pairs through, and cost more for each."""
ROWS_AT_ONCE = 1024


class HeldOut:
    """The held-out texts in one view of them, folded; `near` holds the indices of those near a training text."""

    def __init__(self, texts: Sequence[str], threshold: float = THRESHOLD) -> None:
        self.threshold = threshold
        self.sets = [grams_of(text) for text in texts]
        usual = float(np.median([len(s) for s in self.sets])) if texts else 1.0
        self.buckets = 1 << max(6, int(np.ceil(np.log2(BUCKETS_PER_GRAM * usual + 1))))
        sizes = np.asarray([len(s) for s in self.sets], np.float32)
        needed = self.share * sizes
        self.counts = np.column_stack([self._counts(self.sets), -needed, np.ones_like(needed)])
        self.slack = 1e-3 + 1e-5 * float(sizes.max(initial=0.0))
        self.near: set[int] = set()

    @property
    def share(self) -> float:
        """Grams that two texts as similar as the threshold have in common, as a share of those of both."""
        return self.threshold / (1 + self.threshold)

    def _counts(self, sets: Sequence[set[str]]) -> Counts:
        sizes = np.asarray([len(s) for s in sets], np.int64)
        bucket = np.fromiter(map(hash, chain.from_iterable(sets)), np.int64, int(sizes.sum())) % self.buckets
        place = np.repeat(np.arange(len(sets)), sizes) * self.buckets + bucket
        return (
            np.bincount(place, minlength=len(sets) * self.buckets).reshape(len(sets), self.buckets).astype(np.float32)
        )

    def compare(self, texts: Sequence[str]) -> None:
        """Compare training texts, folded as the held-out ones are, with every held-out text.

        What is needed is subtracted by two more columns of the product: a pass over all pairs for it would take
        several times as long as the product itself.
        """
        if not self.sets:
            return
        for at in range(0, len(texts), ROWS_AT_ONCE):
            sets = [grams_of(text) for text in texts[at : at + ROWS_AT_ONCE]]
            needed = self.share * np.asarray([len(s) for s in sets], np.float32)
            counts = np.column_stack([self._counts(sets), np.ones_like(needed), -needed])
            spare = self.counts @ counts.T
            slack = max(self.slack, 1e-3 + 1e-5 * float(needed.max(initial=0.0)))
            for pair in np.flatnonzero(spare >= -slack).tolist():
                i, j = divmod(pair, len(sets))
                if i not in self.near and similarity(self.sets[i], sets[j]) >= self.threshold:
                    self.near.add(i)
