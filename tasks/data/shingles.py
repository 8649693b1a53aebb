"""Shingles of many texts at once, as sorted arrays of 52-bit hashes, and exact Jaccard of many pairs. Pure.

A hash that two different shingles share changes a similarity with a probability below 1e-11 for a pair of records of
300 shingles; apart from that the similarities are those of the sets of characters themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

CHINESE_GRAM, OTHER_GRAM = 3, 5
ROWS_AT_ONCE = 4096
"""Rows that are hashed or compared in one sort: 12 bits of the sort key, which leaves 52 for the hash."""
_HASH_BITS = np.uint64(52)
_CJK = re.compile(r"[\u3400-\u9fff]")
_PRIME = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class ShingleSets:
    """Shingle sets of many texts: `values[offsets[i]:offsets[i + 1]]` are those of text i, ascending, each once."""

    values: U64
    offsets: I64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def sizes(self) -> I64:
        """Shingles of each text."""
        return np.diff(self.offsets)

    def take(self, rows: I64) -> ShingleSets:
        """The sets of some texts, in the order given."""
        sizes = self.sizes()[rows]
        return ShingleSets(self.values[ranges(self.offsets[rows], sizes)], offsets_of(sizes))


def ranges(starts: I64, sizes: I64) -> I64:
    """The indices of runs that begin at `starts` and are `sizes` long, one run after the other."""
    ends = np.cumsum(sizes)
    found: I64 = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)
    return found


def offsets_of(sizes: I64) -> I64:
    """Where each of consecutive runs begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def mixed(values: U64) -> U64:
    """A bijection of 64-bit numbers whose output bits depend on all input bits (the finaliser of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def dense(normalised: str) -> tuple[str, int]:
    """(the characters that shingles are taken from, characters of a shingle): 3 of Chinese without spaces, else 5."""
    if _CJK.search(normalised):
        return normalised.replace(" ", ""), CHINESE_GRAM
    return normalised, OTHER_GRAM


def shingle_sets(normalised: Sequence[str]) -> ShingleSets:
    """The shingle sets of normalised texts. A text shorter than a shingle is one shingle."""
    return joined(_chunk(normalised[at : at + ROWS_AT_ONCE]) for at in range(0, len(normalised), ROWS_AT_ONCE))


def joined(parts: Iterable[ShingleSets]) -> ShingleSets:
    """Sets one after the other. Each part is taken over before the next is made: they are never held twice."""
    values = np.zeros(0, np.uint64)
    sizes = [np.zeros(0, np.int64)]
    for part in parts:
        held = len(values)
        values.resize(held + len(part.values), refcheck=False)  # large blocks grow without being copied
        values[held:] = part.values
        sizes.append(part.sizes())
    return ShingleSets(values, offsets_of(np.concatenate(sizes)))


def _chunk(normalised: Sequence[str]) -> ShingleSets:
    prepared = [dense(text) for text in normalised]
    keys = [_keys([(i, text) for i, (text, gram) in enumerate(prepared) if gram == size], size) for size in (3, 5)]
    found = np.concatenate(keys)
    found.sort()
    first = np.ones(len(found), np.bool_)
    first[1:] = found[1:] != found[:-1]
    found = found[first]
    sizes = np.bincount((found >> _HASH_BITS).astype(np.int64), minlength=len(normalised))
    return ShingleSets(found & ((np.uint64(1) << _HASH_BITS) - np.uint64(1)), offsets_of(sizes))


def _keys(rows: Sequence[tuple[int, str]], size: int) -> U64:
    """row << 52 | hash of every shingle of `size` characters of the rows."""
    if not rows:
        return np.zeros(0, np.uint64)
    texts = [text if len(text) >= size else text.ljust(size, "\0") for _, text in rows]
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint64)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    windows = lengths - size + 1
    starts = ranges(offsets_of(lengths)[:-1], windows)
    hashes = np.full(len(starts), size, np.uint64)
    for k in range(size):
        hashes = hashes * _PRIME + codes[starts + k]
    number = np.fromiter((i for i, _ in rows), np.uint64, len(rows))
    keys: U64 = np.repeat(number << _HASH_BITS, windows) | (mixed(hashes) >> (np.uint64(64) - _HASH_BITS))
    return keys


def jaccard(left: ShingleSets, a: I64, right: ShingleSets, b: I64) -> F64:
    """Jaccard similarity of set `a[i]` of `left` and set `b[i]` of `right`, for every i."""
    parts = [_jaccard(left.take(a[s]), right.take(b[s])) for s in _slices(len(a))]
    return np.concatenate(parts) if parts else np.zeros(0)


def _slices(count: int) -> Iterator[slice]:
    return (slice(at, at + ROWS_AT_ONCE) for at in range(0, count, ROWS_AT_ONCE))


def _jaccard(left: ShingleSets, right: ShingleSets) -> F64:
    pair = np.arange(len(left), dtype=np.uint64) << _HASH_BITS
    keys = np.concatenate([np.repeat(pair, left.sizes()) | left.values, np.repeat(pair, right.sizes()) | right.values])
    keys.sort()
    shared = keys[1:][keys[1:] == keys[:-1]]
    both = np.bincount((shared >> _HASH_BITS).astype(np.int64), minlength=len(left))
    return both / (left.sizes() + right.sizes() - both)
