"""Exact and near duplicates merged, records that differ in a code kept, and components for the split. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.data.records import Draft
from tasks.data.similarity import (
    EXACT_UP_TO,
    Pair,
    components,
    critical_tokens,
    normalise,
    shingles,
    similar_pairs,
)

SPLIT_THRESHOLD = 0.7
"""Records at or above this similarity never stand on both sides of the split, whatever the merging threshold is."""


@dataclass(slots=True)
class Merged:
    """`kept` are indices that stay; `into` maps each merged index to (kept index, reason); `review` are held back."""

    kept: list[int]
    into: dict[int, tuple[int, str]] = field(default_factory=dict)
    review: list[dict[str, Any]] = field(default_factory=list)


def merge_duplicates(drafts: Sequence[Draft], threshold: float, exact_up_to: int = EXACT_UP_TO) -> Merged:
    """Star clusters: a draft is merged only into a kept one that it is itself similar to, of the same kind.

    The draft with more fields stays, then the earlier one. Similar pairs whose critical tokens differ go to review;
    sensor windows are numbers and are not compared.
    """
    texts = [normalise(draft.content()) for draft in drafts]
    merged = Merged(kept=[])
    order = sorted(range(len(drafts)), key=lambda i: (-_fields(drafts[i]), i))
    first: dict[str, int] = {}
    for i in order:
        if texts[i] in first:
            merged.into[i] = (first[texts[i]], "exact_duplicate")
        else:
            first[texts[i]] = i
    left = [i for i in range(len(drafts)) if i not in merged.into and drafts[i].kind != "sensor"]
    tokens = {i: critical_tokens(texts[i]) | _named(drafts[i]) for i in left}
    pairs = similar_pairs([shingles(texts[i]) for i in left], threshold, exact_up_to)
    near: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for pair in pairs:
        a, b = left[pair.a], left[pair.b]
        if drafts[a].kind != drafts[b].kind:
            continue
        if tokens[a] != tokens[b]:
            merged.review.append(_review(drafts[a], drafts[b], pair, tokens[a] ^ tokens[b]))
        else:
            near[a].append((b, pair.similarity))
            near[b].append((a, pair.similarity))
    stays: set[int] = set()
    for i in (i for i in order if i in tokens):
        centres = [(similarity, -j) for j, similarity in near[i] if j in stays]
        if centres:
            merged.into[i] = (-max(centres)[1], "near_duplicate")
        else:
            stays.add(i)
    merged.kept = [i for i in range(len(drafts)) if i not in merged.into]
    merged.into = {i: (_end(j, merged.into), reason) for i, (j, reason) in sorted(merged.into.items())}
    return merged


def _end(index: int, into: dict[int, tuple[int, str]]) -> int:
    """The kept draft at the end of a chain: an exact copy of a draft that was itself merged as a near duplicate."""
    while index in into:
        index = into[index][0]
    return index


def _named(draft: Draft) -> frozenset[str]:
    """Device model and fault code as critical tokens, for those that hold no digit."""
    fields = (("model", draft.device_model), ("code", draft.fault_type))
    return frozenset(f"{name} {normalise(value)}" for name, value in fields)


def _fields(draft: Draft) -> int:
    return sum(bool(v) for v in (draft.device_model, draft.fault_type, draft.steps, draft.phenomenon, draft.repair))


def _review(a: Draft, b: Draft, pair: Pair, differing: frozenset[str]) -> dict[str, Any]:
    return {
        "source": a.unit.source,
        "location_a": a.unit.location,
        "source_b": b.unit.source,
        "location_b": b.unit.location,
        "similarity": pair.similarity,
        "why": "differ in " + ", ".join(sorted(differing)),
        "text_a": a.content(),
        "text_b": b.content(),
    }


def split_components(
    contents: Sequence[str], questions: Sequence[str], groups: Sequence[str], exact_up_to: int = EXACT_UP_TO
) -> list[int]:
    """Component of each sample (its smallest member): similar by content, or as question and answer, or one event.

    No guard here: variants that differ in a code are kept, and stay on one side of the split.
    """
    links: list[tuple[int, int]] = []
    for texts in (contents, questions):
        sets = [shingles(normalise(text)) for text in texts]
        links.extend((pair.a, pair.b) for pair in similar_pairs(sets, SPLIT_THRESHOLD, exact_up_to))
    first: dict[str, int] = {}
    for i, group in enumerate(groups):
        if group:
            links.append((first.setdefault(group, i), i))
    return components(len(contents), links)
