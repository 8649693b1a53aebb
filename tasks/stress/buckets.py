"""Seconds by bucket of lengths: which planned step stands for a bucket, and what its steps measured. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tasks.data.batch_plan import PlanRow

MOST_BUCKETS = 8
"""Buckets that get a step of their own; with more, some at equal distances, the shortest and the longest among them."""


def bucket_of_steps(rows: Sequence[PlanRow], buckets: Mapping[str, int]) -> dict[int, int]:
    """The bucket of every planned step: that of its longest sample. Empty where samples have none."""
    longest: dict[int, PlanRow] = {}
    for row in rows:
        if row.sample_id in buckets:
            best = longest.get(row.step)
            longest[row.step] = row if best is None or row.n_tokens > best.n_tokens else best
    return {step: buckets[row.sample_id] for step, row in longest.items()}


def steps_to_time(rows: Sequence[PlanRow], buckets: Mapping[str, int], measured: Collection[int]) -> list[int]:
    """A step for every bucket of which none is `measured` anyway: the middle one by padded tokens, shortest first."""
    of_step = bucket_of_steps(rows, buckets)
    padded: dict[int, int] = {}
    for row in rows:
        padded[row.step] = padded.get(row.step, 0) + row.padded_tokens
    missing = sorted(set(of_step.values()) - {of_step[step] for step in measured if step in of_step})
    chosen = []
    for bucket in _spread(missing):
        steps = sorted((step for step, b in of_step.items() if b == bucket), key=lambda s: (padded[s], s))
        chosen.append(steps[len(steps) // 2])
    return chosen


def _spread(buckets: Sequence[int]) -> list[int]:
    if len(buckets) <= MOST_BUCKETS:
        return list(buckets)
    last = len(buckets) - 1
    return sorted({buckets[round(k * last / (MOST_BUCKETS - 1))] for k in range(MOST_BUCKETS)})


def times(
    rows: Sequence[PlanRow],
    buckets: Mapping[str, int],
    planned: Mapping[int, int],
    steps: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Per bucket: its planned steps and padded tokens, and what was measured of it; null where nothing was.

    `planned` gives the planned step behind each run step, `steps` are the lines of `metrics.jsonl`.
    """
    of_step = bucket_of_steps(rows, buckets)
    whole: dict[int, list[int]] = {bucket: [0, 0] for bucket in of_step.values()}
    for step in {row.step for row in rows} & of_step.keys():
        whole[of_step[step]][0] += 1
    for row in rows:
        if row.step in of_step:
            whole[of_step[row.step]][1] += row.padded_tokens
    found = []
    for bucket, (count, padded) in sorted(whole.items()):
        ran = [line for line in steps if of_step.get(planned.get(int(line["step"]), 0)) == bucket]
        seconds = [float(line["seconds"]) for line in ran]
        rates = [int(line["padded_tokens"]) / float(line["seconds"]) for line in ran if float(line["seconds"]) > 0]
        found.append(
            {
                "bucket": bucket,
                "planned_steps": count,
                "planned_padded_tokens": padded,
                "run_steps": [int(line["step"]) for line in ran],
                "seconds_per_step": statistics.median(seconds) if seconds else None,
                "padded_tokens_per_second": statistics.median(rates) if rates else None,
            }
        )
    return found
