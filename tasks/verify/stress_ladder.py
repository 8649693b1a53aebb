"""What the stress test says of the ladder, of growth, of the driver and of time, counted again from its artifacts."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.criteria import Metric
from specs.parameters import leaves
from tasks.verify import training_logs as logs

Rows = Sequence[Mapping[str, Any]]

MAY_CHANGE = frozenset({"allocator", "micro_batch", "gradient_accumulation", "activation_checkpointing", "optimizer"})
"""Settings that running out of memory may change without a person; the samples of a step stay the same."""


def unexplained_settings(artifacts: Path, approved: Mapping[str, Any]) -> Metric:
    """Settings that the worker was asked for and that are neither the approved ones nor what the ladder took."""
    settings = logs.document(artifacts / "settings.json").get("requested")
    if not settings:
        return logs.missing("settings", "settings.json")
    rungs = logs.lines(artifacts / "ladder.jsonl")
    taken: dict[str, Any] = next((dict(r["changes"]) for r in rungs if r.get("taken")), {})
    ran_out = bool(rungs) and rungs[0]["outcome"] == "out_of_memory"
    before = leaves(dict(approved))
    wrong = 0
    for name, value in settings.items():
        if value != before.get(name, value):
            wrong += not (ran_out and name in MAY_CHANGE and taken.get(name) == value)
    wrong += sum(settings.get(name) != value for name, value in taken.items())
    size = int(settings["micro_batch"]) * int(settings["gradient_accumulation"])
    wrong += size != int(before["micro_batch"]) * int(before["gradient_accumulation"])
    written = artifacts / "configuration.json"
    if written.is_file():
        stored = leaves(json.loads(written.read_bytes()))
        wrong += sum(stored.get(name) != value for name, value in settings.items())
    return Metric(value=wrong, unit="settings")


def out_of_memory(artifacts: Path) -> Metric:
    """Configurations that ran out of memory before one ran; none in evidence of a time without a ladder."""
    rungs = logs.lines(artifacts / "ladder.jsonl")
    if not rungs and not (artifacts / "settings.json").is_file():
        return logs.missing("configurations", "ladder.jsonl")
    return Metric(value=sum(r["outcome"] == "out_of_memory" for r in rungs), unit="configurations")


def driver_peak(steps: Rows, memory: Rows) -> Metric:
    """The most that driver or kernel said of the process."""
    found = [int(line["driver_bytes"]) for line in (*steps, *memory) if line.get("driver_bytes") is not None]
    if not found:
        return logs.missing("bytes", "driver_bytes, which the driver did not tell,")
    return Metric(value=max(found), unit="bytes")


def growth(ran: Rows, steps: Rows) -> Metric:
    """Memory held after the last of the heaviest steps in a row over that after the second, less one.

    The first makes the optimizer's states and fills caches.
    """
    shapes: dict[int, tuple[tuple[int, str], ...]] = {}
    for row in ran:
        step = int(row["step"])
        shapes[step] = (*shapes.get(step, ()), (int(row["micro_batch"]), str(row["sample_id"])))
    held = {int(line["step"]): int(line["held_bytes"]) for line in steps if line.get("held_bytes") is not None}
    row_of_same = []
    for step in sorted(shapes):
        if shapes[step] != shapes[min(shapes)] or step not in held:
            break
        row_of_same.append(held[step])
    if len(row_of_same) < 3:
        return Metric(value=None, unit="share", reason="the heaviest step ran less than three times in a row")
    return Metric(value=round(row_of_same[-1] / row_of_same[1] - 1, 6), unit="share")


def planned_hours(planned: Rows, ran: Rows, steps: Rows, samples: Path) -> Metric:
    """Padded tokens of the plan at the measured seconds per padded token of their bucket of lengths.

    A step belongs to the bucket of its longest sample; buckets without a measured step take the median of the others.
    """
    if not planned or not any(int(line["padded_tokens"]) for line in steps):
        return logs.missing("h", "batch_plan.parquet or metrics.jsonl")
    buckets = _buckets(samples)
    of_run, of_plan = _by_step(ran, buckets), _by_step(planned, buckets)
    rates: dict[int, list[float]] = defaultdict(list)
    for line in steps:
        if int(line["step"]) in of_run and int(line["padded_tokens"]):
            rates[of_run[int(line["step"])][0]].append(float(line["seconds"]) / int(line["padded_tokens"]))
    known = {bucket: statistics.median(found) for bucket, found in rates.items()}
    if not known:
        return logs.missing("h", "a measured step")
    usual = statistics.median(known.values())
    seconds = sum(tokens * known.get(bucket, usual) for bucket, tokens in of_plan.values())
    return Metric(value=seconds / 3600, unit="h")


def _buckets(samples: Path) -> dict[str, int]:
    import pyarrow.parquet as pq

    if not samples.is_file() or "bucket" not in pq.read_schema(samples).names:
        return {}
    table = pq.read_table(samples, columns=["sample_id", "bucket"]).to_pydict()
    return dict(zip(table["sample_id"], table["bucket"], strict=True))


def _by_step(rows: Rows, buckets: Mapping[str, int]) -> dict[int, tuple[int, int]]:
    """(bucket, padded tokens) of every step; one bucket for all where samples have none."""
    longest: dict[int, tuple[int, int]] = {}
    tokens: dict[int, int] = defaultdict(int)
    for row in rows:
        step = int(row["step"])
        tokens[step] += int(row["padded_tokens"])
        here = (int(row["n_tokens"]), int(buckets.get(row["sample_id"], 0)))
        longest[step] = max(longest.get(step, here), here)
    return {step: (longest[step][1], tokens[step]) for step in longest}
