"""What the files of a training show, read and counted again. Shares no code with the training itself."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.criteria import Metric
from specs.files import read_lines

MOST_POINTS = 1200
"""Points of a trend; longer curves are averaged in bins first, so that the pairs stay below a million."""


def lines(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON-lines file; none when it is missing."""
    return read_lines(path) if path.is_file() else []


def document(path: Path) -> dict[str, Any]:
    """A JSON document; empty when it is missing."""
    found: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return found


def table(path: Path) -> list[dict[str, Any]]:
    """The rows of a Parquet file; none when it is missing."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist() if path.is_file() else []
    return rows


def missing(unit: str, what: str) -> Metric:
    """A metric that no artifact shows."""
    return Metric(value=None, unit=unit, reason=f"{what} is missing or empty")


def steps_missing(planned: Sequence[Mapping[str, Any]], metrics: Sequence[Mapping[str, Any]]) -> Metric:
    """Planned steps without a line, and lines that are doubled or not planned."""
    if not planned:
        return missing("steps", "batch_plan.parquet")
    wanted = Counter({int(row["step"]): 1 for row in planned})
    found = Counter(int(line["step"]) for line in metrics)
    off = (wanted - found) + (found - wanted)
    return Metric(value=sum(off.values()), unit="steps")


def nonfinite_steps(metrics: Sequence[Mapping[str, Any]]) -> Metric:
    """Steps whose loss or gradient norm is null or infinite; a step that fp16 loss scaling skipped says so itself."""
    if not metrics:
        return missing("steps", "metrics.jsonl")

    def finite(line: Mapping[str, Any]) -> bool:
        names = ("loss",) if line.get("skipped") else ("loss", "grad_norm")
        return all(line.get(n) is not None and math.isfinite(line[n]) for n in names)

    return Metric(value=sum(not finite(line) for line in metrics), unit="steps")


def order_mismatches(planned: Sequence[Mapping[str, Any]], fed: Sequence[Mapping[str, Any]]) -> Metric:
    """Micro batches whose place or samples are not the planned ones, compared one by one in the order of feeding."""
    if not planned:
        return missing("micro batches", "batch_plan.parquet")
    wanted: dict[tuple[int, int, int], list[str]] = {}
    for row in planned:
        place = (int(row["step"]), int(row["micro_batch"]), int(row["rank"]))
        wanted.setdefault(place, []).append(row["sample_id"])
    expected = [(*place, ids) for place, ids in wanted.items()]
    actual = [(line["step"], line["micro_batch"], line.get("rank", 0), line["sample_ids"]) for line in fed]
    wrong = sum(a != b for a, b in zip(expected, actual, strict=False))
    return Metric(value=wrong + abs(len(expected) - len(actual)), unit="micro batches")


def samples_off_census(planned: Sequence[Mapping[str, Any]], fed: Sequence[Mapping[str, Any]]) -> Metric:
    """Samples that an epoch saw too often or too rarely; the epoch of a micro batch is that of its step in the plan."""
    if not planned:
        return missing("samples", "batch_plan.parquet")
    epoch_of = {int(row["step"]): int(row["epoch"]) for row in planned}
    wanted = Counter((int(row["epoch"]), row["sample_id"]) for row in planned)
    found = Counter((epoch_of.get(line["step"], 0), i) for line in fed for i in line["sample_ids"])
    return Metric(value=sum(((wanted - found) + (found - wanted)).values()), unit="samples")


def loss_trend(metrics: Sequence[Mapping[str, Any]]) -> Metric:
    """Theil-Sen slope: the median of the slopes between all pairs of steps. One wild step does not turn it."""
    points = [(int(line["step"]), float(line["loss"])) for line in metrics if line.get("loss") is not None]
    if len(points) < 2:
        return missing("nats/token/step", "metrics.jsonl")
    return Metric(value=theil_sen(points), unit="nats/token/step")


def theil_sen(points: Sequence[tuple[float, float]]) -> float:
    """Median slope over all pairs of (x, y) with distinct x."""
    import numpy as np

    if len(points) > MOST_POINTS:
        bins = np.array_split(np.array(points, dtype=float), MOST_POINTS)
        points = [(float(b[:, 0].mean()), float(b[:, 1].mean())) for b in bins]
    x, y = np.array(points, dtype=float).T
    first, second = np.triu_indices(len(x), k=1)
    run = x[second] - x[first]
    rise = y[second] - y[first]
    return float(np.median(rise[run != 0] / run[run != 0]))


def median_of(metrics: Sequence[Mapping[str, Any]], name: str, unit: str) -> Metric:
    """Median over the steps."""
    import statistics

    values = [float(line[name]) for line in metrics if line.get(name) is not None]
    return Metric(value=statistics.median(values), unit=unit) if values else missing(unit, f"{name} in metrics.jsonl")


def largest(metrics: Sequence[Mapping[str, Any]], name: str, unit: str) -> Metric:
    """Maximum over the steps."""
    values = [float(line[name]) for line in metrics if line.get(name) is not None]
    return Metric(value=max(values), unit=unit) if values else missing(unit, f"{name} in metrics.jsonl")
