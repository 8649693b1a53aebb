"""Which texts are alike: normalised text, shingles, exact Jaccard, critical tokens. Pure.

Up to `EXACT_UP_TO` texts every pair at or above the threshold is found (prefix filter over rare shingles); beyond
that, candidates come from MinHash (128 permutations, 16 x 8 bands) and are verified by exact Jaccard.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

EXACT_UP_TO = 20_000
PERMUTATIONS, BANDS = 128, 16
_MINHASH_SEED = 42
_CJK = re.compile(r"[\u3400-\u9fff]")
_JOINERS = re.compile(r"(?<=\w)[.\-+/#*](?=\w)|(?<!\w)[-+](?=\d)")
_KEPT_MARKS = {".": "\ue000", "-": "\ue001", "+": "\ue002", "/": "\ue003", "#": "\ue004", "*": "\ue005"}
_BACK = {ord(mark): char for char, mark in _KEPT_MARKS.items()}

_TOKEN = re.compile(r"[a-z0-9.+\-/#*]*\d[a-z0-9.+\-/#*]*")
_AXIS = re.compile(r"(?<![a-z])([a-z])(?=[\s\-]*(?:axis|axes|轴))")
_ORDINAL = re.compile(r"[一二三四五六七八九十]+(?=[号轴相级档段])")


def normalise(text: str) -> str:
    """NFKC, case folded, punctuation dropped except inside words and as a sign, white space collapsed."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = _JOINERS.sub(lambda m: _KEPT_MARKS[m.group()], text)
    text = re.sub(r"[^\w\s\ue000-\ue005]|_", " ", text).translate(_BACK)
    text = re.sub(r"(?<=[\u3400-\u9fff])\s+(?=[\u3400-\u9fff])", "", text)
    return " ".join(text.split())


def critical_tokens(normalised: str) -> frozenset[str]:
    """Codes, models, numbers, axes and Chinese ordinals: what must be equal before two records may be merged."""
    return frozenset(
        [*_TOKEN.findall(normalised), *(f"{a} axis" for a in _AXIS.findall(normalised)), *_ORDINAL.findall(normalised)]
    )


def shingles(normalised: str) -> frozenset[str]:
    """Character 3-grams for Chinese (without spaces), 5-grams for other text. One size, so that lengths compare."""
    chinese = _CJK.search(normalised) is not None
    dense = normalised.replace(" ", "") if chinese else normalised
    size = 3 if chinese else 5
    return frozenset(dense[i : i + size] for i in range(max(1, len(dense) - size + 1)))


def jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    """Size of the intersection over size of the union."""
    both = len(a & b)
    return both / (len(a) + len(b) - both) if both else 0.0


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts, by index with `a < b`, and their exact Jaccard similarity."""

    a: int
    b: int
    similarity: float


def similar_pairs(sets: Sequence[frozenset[str]], threshold: float, exact_up_to: int = EXACT_UP_TO) -> list[Pair]:
    """All pairs of shingle sets with Jaccard >= `threshold`, sorted; above `exact_up_to` sets those MinHash finds."""
    candidates = _by_prefix(sets, threshold) if len(sets) <= exact_up_to else _by_minhash(sets)
    pairs = []
    for a, b in candidates:
        similarity = jaccard(sets[a], sets[b])
        if similarity >= threshold:
            pairs.append(Pair(a, b, similarity))
    return sorted(pairs, key=lambda pair: (pair.a, pair.b))


def _by_prefix(sets: Sequence[frozenset[str]], threshold: float) -> Iterator[tuple[int, int]]:
    """Candidates that share one of their rarest shingles and are near in size: a superset of all similar pairs.

    Source: Chaudhuri, Ganti, Kaushik (2006), prefix filter; a set of n shingles needs n - ceil(t n) + 1 of them.
    """
    frequency = Counter(s for shingle_set in sets for s in shingle_set)
    order = sorted(range(len(sets)), key=lambda i: (len(sets[i]), i))
    postings: dict[str, list[int]] = defaultdict(list)
    for i in order:
        size = len(sets[i])
        if not size:
            continue
        rarest = sorted(sets[i], key=lambda s: (frequency[s], s))[: size - math.ceil(threshold * size - 1e-9) + 1]
        seen: set[int] = set()
        for shingle in rarest:
            for j in postings[shingle]:
                if j not in seen and len(sets[j]) >= threshold * size - 1e-9:
                    seen.add(j)
                    yield min(i, j), max(i, j)
            postings[shingle].append(i)


def _by_minhash(sets: Sequence[frozenset[str]]) -> Iterator[tuple[int, int]]:
    """Candidates that agree in at least one of 16 bands of 8 permutations."""
    from rensa import RMinHash, RMinHashLSH

    index = RMinHashLSH(threshold=0.7, num_perm=PERMUTATIONS, num_bands=BANDS)
    for i, shingle_set in enumerate(sets):
        if not shingle_set:
            continue
        sketch = RMinHash(num_perm=PERMUTATIONS, seed=_MINHASH_SEED)
        sketch.update(sorted(shingle_set))
        for j in sorted(index.query(sketch)):
            yield j, i
        index.insert(i, sketch)


def components(count: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """The smallest member of the connected component of each of `count` things."""
    parent = list(range(count))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for a, b in pairs:
        ra, rb = root(a), root(b)
        if ra != rb:
            parent[max(ra, rb)] = min(ra, rb)
    return [root(i) for i in range(count)]
