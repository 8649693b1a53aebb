"""Exact and near duplicates merged, and records that differ in a code kept and listed for a person. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import xxhash

from tasks.data.clusters import Pairs, SetsOf, similar_pairs, star_clusters
from tasks.data.records import Draft
from tasks.data.shingles import I64, U64, ShingleSets, shingle_sets
from tasks.data.similarity import critical_tokens, normalise
from tasks.data.sketches import Sketches, sketches_of
from tasks.data.system_texts import MARK, substance
from tasks.data.teaching import Teaching

SPLIT_THRESHOLD = 0.7
"""Records at or above this similarity never stand on both sides of the split, whatever the merging threshold is."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """What rows are compared by. Rows with an equal `exact` say the same; only rows with an equal `guard` merge."""

    exact: U64
    guard: U64
    sketches: Sketches

    def __len__(self) -> int:
        return len(self.exact)


def critical(normalised: str, kind: str, device_model: str, fault_type: str, system: str = "") -> frozenset[str]:
    """What must be equal before two records may merge: codes, models and numbers, the named fields, the kind, and
    what the system text says."""
    named = {f"kind {kind}", f"model {_name(device_model)}", f"code {_name(fault_type)}"}
    told = {f"{MARK}{substance(system)}"} if system else set()
    return critical_tokens(normalised) | named | told


@lru_cache(maxsize=65_536)
def _name(text: str) -> str:
    """A machine or code, normalised: few of them name many records."""
    return normalise(text)


def guard_of(draft: Draft) -> frozenset[str]:
    """The critical tokens of a draft."""
    return critical(normalise(draft.content()), draft.kind, draft.device_model, draft.fault_type, draft.system)


def fingerprints(normalised: Sequence[str], guards: Sequence[frozenset[str]]) -> Fingerprints:
    """The fingerprints of normalised texts and what must be equal in them."""
    return Fingerprints(
        hashes(normalised),
        hashes(["\x1f".join(sorted(guard)) for guard in guards]),
        sketches_of(shingle_sets(normalised)),
    )


def hashes(texts: Sequence[str]) -> U64:
    """A 64-bit hash of each text."""
    found = (xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass")) for text in texts)
    return np.fromiter(found, np.uint64, len(texts))


@dataclass(frozen=True, slots=True)
class Merged:
    """`into[i]` is the row that stays for row i, -1 where i stays itself; `exact` are merged copies to the letter.

    `pairs` are similar rows that both stay, by leader: what links the components of the split. `review` are the
    positions of those that are as alike as duplicates: their critical tokens, or what they teach, keep them apart.
    """

    into: I64
    exact: Flags
    pairs: Pairs
    review: I64


def merge_duplicates(
    prints: Fingerprints,
    fields: I64,
    usable: Flags,
    compared: Flags,
    threshold: float,
    sets_of: SetsOf,
    teaching: Teaching | None = None,
) -> Merged:
    """Merge the `usable` rows. The row with more `fields` stays, then the earlier one.

    Copies to the letter are merged first; near ones by star clusters among `compared` rows (sensor windows are
    numbers and are not compared). One record of each cluster always stays. Near ones merge only where `teaching`
    allows it.
    """
    ranked = np.lexsort((np.arange(len(prints)), -fields))
    ranked = ranked[usable[ranked]]
    into = np.full(len(prints), -1, np.int64)
    _, first, back = np.unique(prints.exact[ranked], return_index=True, return_inverse=True)
    centre = ranked[first[back]]
    copies = ranked != centre
    into[ranked[copies]] = centre[copies]
    exact = into >= 0
    ranked = ranked[~copies]
    ranked = ranked[compared[ranked]]
    near = star_clusters(prints.sketches, ranked, prints.guard, threshold, sets_of, teaching)
    into[np.fromiter(near.keys(), np.int64, len(near))] = np.fromiter(near.values(), np.int64, len(near))
    followed = np.flatnonzero(exact)
    ends = into[into[followed]]
    into[followed] = np.where(ends >= 0, ends, into[followed])
    exact[followed[ends >= 0]] = False  # a copy of a row that went is only nearly what stays
    stay = ranked[into[ranked] < 0]
    pairs = similar_pairs(prints.sketches, stay, None, min(threshold, SPLIT_THRESHOLD), sets_of)
    alike = pairs.similarity >= threshold
    differs = prints.guard[pairs.a] != prints.guard[pairs.b]
    by_answer = np.flatnonzero(alike & ~differs)
    _, first = np.unique(pairs.b[by_answer], return_index=True)  # one question has many answers: each is shown once
    return Merged(into, exact, pairs, np.union1d(np.flatnonzero(alike & differs), by_answer[first]))


def in_memory(normalised: Sequence[str]) -> SetsOf:
    """The shingle sets of texts that are at hand."""

    def sets_of(rows: I64) -> ShingleSets:
        return shingle_sets([normalised[row] for row in rows.tolist()])

    return sets_of
