"""Whether the list for review holds the pairs that were kept apart, and nothing else.

Samples that are the same but for their codes and numbers must stand there. The stage finds such pairs by sketches, and
how likely a sketch misses one of a given similarity is known: more missing ones than one honest run in a million has
are a fault.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from math import exp
from typing import Any

from tasks.turns import COLUMN
from tasks.verify.data_rows import RawFiles
from tasks.verify.data_texts import content, fold, grams, similarity
from tasks.verify.findings import CLAIMS, Findings
from tasks.verify.parquet_rows import key_of, place_of

SURE = 0.85
"""Similarity from which a pair is demanded; below it too many are missed by chance."""
_FAMILY_AT_MOST = 64
"""Members of a family of variants that are compared with its first one."""
BANDS, ROWS_OF_A_BAND = 16, 8
_WITH_DIGIT = re.compile(r"\S*\d\S*")


def look_at_review(files: RawFiles, findings: Findings) -> None:
    """Name pairs on the list that do not hold, and say how many are not there."""
    listed = {place_of(p["source"], p["location_a"]) for p in files.review}
    listed |= {place_of(p["source_b"], p["location_b"]) for p in files.review}
    kept = {
        place_of(row["source"], row["location"])
        for batch in files.ledger.batches(["source", "location", "fate"])
        for row in batch
        if row["fate"] == "kept"
    }
    for p in files.review:
        if wrong := _pair_fault(p, kept, files.parameters.near_duplicate_threshold):
            findings.add(CLAIMS, f"review_pairs {p['source']}|{p['location_a']}", wrong)
    missing, expected = [], 0.0
    for name, place, alike in _variants(files):
        expected += (1 - alike**ROWS_OF_A_BAND) ** BANDS
        if place not in listed:
            missing.append(name)
    if len(missing) > chance_allows(expected):
        for name in missing:
            findings.add(CLAIMS, name, "differs from another in a code or number only, and is not on the review list")


def _pair_fault(pair: dict[str, Any], kept: set[int], threshold: float) -> str:
    if not {place_of(pair["source"], pair["location_a"]), place_of(pair["source_b"], pair["location_b"])} <= kept:
        return "one of the two was not kept"
    alike = similarity(grams(pair["text_a"]), grams(pair["text_b"]))
    if alike < threshold - 1e-6 or abs(alike - pair["similarity"]) > 1e-6:
        return f"the two are {alike:.3f} alike"
    return "" if str(pair["why"]).removeprefix("differ in").strip() else "nothing is said of what differs"


def _variants(files: RawFiles) -> Iterator[tuple[str, int, float]]:
    """(name, place, similarity) of samples that are as another one but for words with a digit, of one kind."""
    family: defaultdict[int, list[tuple[int, str, str]]] = defaultdict(list)
    columns = ["source", "location", "kind", "prompt", "answer", "device_model", "fault_type", "phenomenon"]
    sure = max(SURE, files.parameters.near_duplicate_threshold)
    first: dict[int, tuple[str, str, int]] = {}
    several = files.parameters.max_length is not None
    for batch in () if several else files.samples.batches([*columns, "steps", "repair", COLUMN]):
        for s in batch:
            if s["kind"] == "sensor":
                continue
            said = fold(content(s))
            alike = key_of(f"{s['kind']} {_WITH_DIGIT.sub('', said)}")
            place = place_of(s["source"], s["location"])
            name = f"{s['source']}|{s['location']}"
            leader = first.setdefault(alike, (said, name, place))
            if leader[2] != place and len(family[alike]) < _FAMILY_AT_MOST:
                family[alike].append((place, name, said))
    for alike, members in family.items():
        said, name, place = first[alike]
        mine = grams(said)
        similar = [(n, p, similarity(mine, grams(text))) for p, n, text in members]
        similar = [found for found in similar if found[2] >= sure]
        yield from similar
        if similar:
            yield name, place, max(s for _, _, s in similar)


def chance_allows(expected: float, at_most: float = 1e-6) -> int:
    """The fewest events that a Poisson count with this mean exceeds with a probability of `at_most` or less."""
    term, total, count = exp(-expected), exp(-expected), 0
    while 1 - total > at_most and count < 10_000:
        count += 1
        term *= expected / count
        total += term
    return count
