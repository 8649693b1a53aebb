"""Questions with their answers that are trained on and held out word for word, wherever in a conversation they stand.

A pair in more than `OFTEN` samples, and in more than `OFTEN_SHARE` of them, is a commonplace: it says nothing of what
a sample is about. A held-out sample leaks where one of its other pairs is taught, or all of its pairs are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.turns import turns_of
from tasks.verify.data_texts import fold
from tasks.verify.parquet_rows import Keys, key_of, keys_of

OFTEN = 5
OFTEN_SHARE = 0.01


def pair_keys(sample: Mapping[str, Any]) -> set[int]:
    """Keys of the questions of a sample with their answers that are learnt; none of plain text."""
    if not sample["prompt"]:
        return set()
    asked = ""
    found = {_key(sample["prompt"], sample["answer"])}
    for turn in turns_of(sample):
        if turn.role == "user":
            asked = turn.text
        elif turn.role == "assistant" and turn.learnt:
            found.add(_key(asked, turn.text))
    return found


def _key(question: str, answer: str) -> int:
    return key_of("\0".join(fold(text) or text.strip() for text in (question, answer)))


class PairLeaks:
    """The pairs of all samples, 16 bytes each; `train` tells what is taught from what is held out."""

    def __init__(self) -> None:
        self._keys, self._samples = array("Q"), array("q")
        self._held_out: list[bool] = []

    def take(self, sample: Mapping[str, Any]) -> None:
        """One more sample."""
        found = pair_keys(sample)
        self._keys.extend(found)
        self._samples.extend([len(self._held_out)] * len(found))
        self._held_out.append(sample["split"] == "eval")

    def leaks(self, taught: Iterable[int] | None = None) -> set[int]:
        """Held-out samples that leak, by their number among the held-out ones.

        `taught` are keys of what another training has learnt; without them, what the training samples here teach.
        """
        keys, sample = keys_of(self._keys), np.asarray(self._samples, np.int64)
        if not len(keys):
            return set()
        held_out = np.asarray(self._held_out, np.bool_)
        known = np.isin(keys, keys[~held_out[sample]] if taught is None else keys_of(taught))
        telling = known & ~self._often(keys)
        count = len(held_out)
        some, seen = (np.bincount(sample[chosen], minlength=count) for chosen in (telling, known))
        pairs = np.bincount(sample, minlength=count)
        leaking = held_out & ((some > 0) | ((pairs > 0) & (seen == pairs)))
        return set((np.cumsum(held_out)[leaking] - 1).tolist())

    def _often(self, keys: Keys) -> npt.NDArray[np.bool_]:
        _, place, count = np.unique(keys, return_inverse=True, return_counts=True)
        often: npt.NDArray[np.bool_] = count[place] > max(OFTEN, OFTEN_SHARE * len(self._held_out))
        return often
