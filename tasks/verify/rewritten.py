"""What a stage that rewrites samples may not break, whatever it says of itself: the split, and what leaks across it.

The search is the one that judges the data stage; nothing of the added stage's code takes part.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specs.criteria import Metric
from specs.metrics import OF_REWRITTEN
from tasks.verify.data_leaks import HeldOut
from tasks.verify.data_samples import VIEWS, exact_leaks, tuple_of_keys
from tasks.verify.pair_leaks import PairLeaks
from tasks.verify.parent_leaks import parent_leakage
from tasks.verify.parquet_rows import ParquetRows

_READ = (
    "sample_id",
    "split",
    "kind",
    "device_model",
    "fault_type",
    "phenomenon",
    "steps",
    "repair",
    "prompt",
    "answer",
)
"""Columns that the search for leaks reads; each holds a text in every row."""


def metrics(before: Path, after: Path, context: Mapping[str, Any]) -> dict[str, Metric]:
    """Every metric of a rewriting, by name: `before` is the table that was read, `after` the one that was written.

    Where rows of the new table lack a text or a side, nothing can be measured of it, and nothing passes.
    """
    old, new = ParquetRows(before), ParquetRows(after)
    if odd := _unreadable(new):
        return {d.name: Metric(value=None, unit=d.unit, reason=odd) for d in OF_REWRITTEN}
    exact, near = _leaks(new)
    was, now = _sides(old), _sides(new)
    had, has = (Counter({sample: len(sides) for sample, sides in found.items()}) for found in (was, now))
    values = {
        "exact_duplicate_leakage": exact,
        "near_duplicate_leakage": near,
        "samples_across": sum(bool(set(now[s]) - set(was[s])) for s in was.keys() & now.keys()),
        "samples_left_out": (had - has).total(),
        "samples_made": (has - had).total(),
    }
    found = {name: Metric(value=value, unit="samples") for name, value in values.items()}
    return {d.name: found.get(d.name) or parent_leakage(new, context) for d in OF_REWRITTEN}


def _unreadable(samples: ParquetRows) -> str:
    """Why nothing can be measured of a table; empty where all of it can."""
    for batch in samples.batches(_READ):
        for row in batch:
            lacking = [name for name in _READ if not isinstance(row[name], str)]
            if lacking:
                return f"sample {row['sample_id']!r} has no {', '.join(lacking)}"
            if row["split"] not in ("train", "eval"):
                return f"sample {row['sample_id']!r} is on side {row['split']!r}, which is neither train nor eval"
    return "" if len(samples) else "there is no sample"


def _leaks(samples: ParquetRows) -> tuple[int, int]:
    """Held-out samples that a training sample equals, and that one is near to."""
    held_out = samples.where("split", "eval")
    near = [HeldOut([view(s) for s in held_out]) for view in VIEWS]
    sought = [tuple_of_keys(s) for s in held_out]
    trained, pairs = array("Q"), PairLeaks()
    for batch in samples.batches():
        for row in batch:
            pairs.take(row)
        rows = [s for s in batch if s["split"] == "train"]
        for row in rows:
            trained.extend(tuple_of_keys(row))
        for view, index in zip(VIEWS, near, strict=True):
            index.compare([view(s) for s in rows])
    return len(exact_leaks(sought, trained, pairs)), len(set().union(*(index.near for index in near)))


def _sides(samples: ParquetRows) -> dict[str, list[str]]:
    """Per sample id the sides it is on: one, where each id stands once."""
    found: dict[str, list[str]] = {}
    for batch in samples.batches(["sample_id", "split"]):
        for row in batch:
            found.setdefault(row["sample_id"], []).append(row["split"])
    return found
