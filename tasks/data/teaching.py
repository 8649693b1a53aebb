"""What a sample teaches: its questions with the answers that are learnt, and which samples share one. Pure.

Two records may be alike as a whole and teach different things: the last of ten answers is a tenth of the text. And two
that are not alike may teach the same: a question by itself, and the conversation in which it was asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tasks.data.shingles import I64, U64, jaccard, shingle_sets
from tasks.data.similarity import critical_tokens, normalise
from tasks.turns import Turns

COMMON_AT_LEAST = 5
COMMON_SHARE = 0.01
"""A question with its answer in more samples than both is a commonplace (a greeting, thanks): it ties none of them."""
_BREAK = "\x1f"
_Flags = npt.NDArray[np.bool_]


class Teaching(Protocol):
    """What rows teach, by their numbers."""

    def may(self, stays: I64, goes: I64) -> _Flags:
        """Whether `stays[i]` may stay for `goes[i]`, for every i."""

    def lacking(self, stays: I64, goes: I64) -> list[list[str]]:
        """The normalised answers that `goes[i]` teaches and `stays[i]` does not, sorted, for every i."""


def pairs_said(turns: Turns, prompt: str, answer: str) -> list[tuple[str, str]]:
    """The questions of a sample with their answers that are learnt, normalised; none of plain text."""
    said = [turn for turn in turns if turn.role != "system"]
    earlier = [(asked.text, told.text) for asked, told in zip(said[::2], said[1::2], strict=False) if told.learnt]
    return [(_said(q), _said(a)) for q, a in [*earlier, *([(prompt, answer)] if prompt else [])]]


def pair_texts(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Each question with its answer as one text, told apart from every other division of the same words."""
    return [_BREAK.join(pair) for pair in pairs]


def letters(turns: Turns, prompt: str, answer: str) -> str:
    """What two conversations must have equal to be one to the letter: roles, words, system text, what is learnt."""
    earlier = (f"{turn.role}{'+' * turn.learnt}{_BREAK}{_said(turn.text)}" for turn in turns)
    return "\n".join((*earlier, f"user{_BREAK}{_said(prompt)}", f"assistant+{_BREAK}{_said(answer)}"))


def _said(text: str) -> str:
    return normalise(text) or text.strip()


def teaches(stays: Sequence[Sequence[str]], goes: Sequence[Sequence[str]], threshold: float) -> list[bool]:
    """Whether every normalised answer of `goes[i]` is, or is nearly, one of `stays[i]`, with the same critical tokens.

    All similarities are computed at once: one question may have thousands of answers.
    """
    number: dict[str, int] = {}
    lacking = [sorted(set(gone) - set(kept)) for kept, gone in zip(stays, goes, strict=True)]
    asked = [
        (i, number.setdefault(text, len(number)), number.setdefault(other, len(number)))
        for i, new in enumerate(lacking)
        for text in new
        for other in stays[i]
    ]
    sets, texts = shingle_sets(list(number)), list(number)
    of_pair, a, b = np.asarray(asked, np.int64).reshape(-1, 3).T
    near = jaccard(sets, a, sets, b) >= threshold
    found = {
        (i, x)
        for i, x, y in zip(of_pair[near].tolist(), a[near].tolist(), b[near].tolist(), strict=True)
        if critical_tokens(texts[x]) == critical_tokens(texts[y])
    }
    return [all((i, number.get(text)) in found for text in new) for i, new in enumerate(lacking)]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Questions with their answers: `key[i]` is one that sample `owner[i]` of `count` samples teaches, each once."""

    key: U64
    owner: I64
    count: int

    @classmethod
    def of(cls, keys: Sequence[Sequence[int]]) -> Pairs:
        """The keys of every sample."""
        each = [sorted(set(found)) for found in keys]
        owner = np.repeat(np.arange(len(each)), [len(found) for found in each])
        return cls(np.asarray([key for found in each for key in found], np.uint64), owner.astype(np.int64), len(each))

    def common(self) -> _Flags:
        """Which of them are commonplaces."""
        _, back, count = np.unique(self.key, return_inverse=True, return_counts=True)
        flags: _Flags = count[back] > max(COMMON_AT_LEAST, COMMON_SHARE * self.count)
        return flags

    def links(self) -> tuple[I64, I64]:
        """Samples with the first one that teaches the same question with its answer; commonplaces left out."""
        chosen = ~self.common()
        owner = self.owner[chosen]
        _, first, back = np.unique(self.key[chosen], return_index=True, return_inverse=True)
        return owner, owner[first[back]]

    def given_away(self, known: _Flags) -> _Flags:
        """Samples of which something telling is `known`, or everything."""
        telling = known & ~self.common()
        some = np.bincount(self.owner[telling], minlength=self.count) > 0
        all_of_it = np.bincount(self.owner[known], minlength=self.count)
        of_all = np.bincount(self.owner, minlength=self.count)
        flags: _Flags = some | ((of_all > 0) & (all_of_it == of_all))
        return flags
