"""Held-out samples that a parent of this run was trained on, measured over all pairs. Shares no code with the stage."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.canonical import sha256_file
from specs.criteria import Metric
from tasks.verify.data_leaks import HeldOut
from tasks.verify.data_samples import VIEWS
from tasks.verify.pair_leaks import PairLeaks, pair_keys
from tasks.verify.parquet_rows import ParquetRows


def parent_leakage(samples: ParquetRows, context: Mapping[str, Any]) -> Metric:
    """0 without a parent; null where the samples of a parent are not known, gone or changed."""
    record = (context.get("spec") or {}).get("parent_record")
    if record is None:
        return Metric(value=0, unit="samples")
    if record["learnt_unknown"]:
        return _null(f"on which samples parent {record['named']} or a parent of it was trained is not known here")
    held_out: Sequence[Mapping[str, Any]] = samples.where("split", "eval")
    near = [HeldOut([view(s) for s in held_out]) for view in VIEWS]
    pairs, taught = PairLeaks(), array("Q")
    for sample in samples:
        pairs.take(sample)
    for one in record["learnt"]:
        path = Path(context["project_dir"]) / one["path"]
        if not path.is_file() or sha256_file(path) != one["sha256"]:
            return _null(f"{one['path']}, on which parent {one['run']} was trained, is gone or changed")
        for batch in ParquetRows(path).batches():
            trained = [row for row in batch if row["split"] == "train"]
            for row in trained:
                taught.extend(pair_keys(row))
            for view, index in zip(VIEWS, near, strict=True):
                index.compare([view(row) for row in trained])
    found = pairs.leaks(taught).union(*(index.near for index in near))
    return Metric(value=len(found), unit="samples")


def _null(reason: str) -> Metric:
    return Metric(value=None, unit="samples", reason=reason)
