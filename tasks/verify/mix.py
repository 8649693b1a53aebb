"""Whether a plan mixes plain text with questions as asked, counted again. Shares no code with the planner.

A sample without a prompt is plain text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.criteria import Metric
from tasks.verify import training_logs as logs

Row = Mapping[str, Any]


def admitted(rows: Sequence[Row], training: Mapping[str, Any]) -> list[Row]:
    """Training rows that may be planned at all: other kinds of plain text, or an objective with share 0, may not."""
    share, kinds = training.get("plain_text_share"), training.get("plain_text_kinds")

    def may(row: Row) -> bool:
        if row.get("prompt"):
            return share != 1
        return share != 0 and (kinds is None or row.get("kind") in kinds)

    return list(rows) if share is None and kinds is None else [row for row in rows if may(row)]


def by_turns(rows: Sequence[Row], training: Mapping[str, Any]) -> set[str]:
    """Plain text that need not be in every epoch; nothing without a mix of both objectives."""
    if training.get("plain_text_share") in (None, 0, 1):
        return set()
    return {str(row["sample_id"]) for row in rows if not row.get("prompt")}


def turns_wrong(planned: Sequence[Row], training: Mapping[str, Any], turns: set[str]) -> int:
    """Plain texts too many or too few in an epoch, and turns that some have more often than others.

    Beside the questions of an epoch plain text is the asked share, to the next whole sample, and no text has two turns
    more than another. An epoch that `max_steps` cuts is left out.
    """
    if not turns:
        return 0
    share = float(training["plain_text_share"])
    epochs: dict[int, Counter[bool]] = defaultdict(Counter)
    times = {epoch: Counter[str]() for epoch in {int(row["epoch"]) for row in planned}}
    for row in planned:
        epochs[int(row["epoch"])][row["sample_id"] in turns] += 1
        times[int(row["epoch"])][str(row["sample_id"])] += row["sample_id"] in turns
    whole = sorted(epochs)[:-1] if training.get("max_steps") is not None else sorted(epochs)
    wrong = 0
    for epoch in whole:
        off = abs(epochs[epoch][True] - epochs[epoch][False] * share / (1 - share))
        wrong += 0 if off <= 1 else round(off)
    counts = [sum(times[epoch][sample_id] for epoch in whole) for sample_id in turns]
    return wrong + max(0, max(counts) - min(counts) - 1)


def _plain(samples: Path) -> set[str] | None:
    import pyarrow.parquet as pq

    if not samples.is_file() or "prompt" not in pq.read_schema(samples).names:
        return None
    table = pq.read_table(samples, columns=["sample_id", "prompt"]).to_pylist()
    return {str(row["sample_id"]) for row in table if not row["prompt"]}


def share_of_samples(planned: Sequence[Row], samples: Path) -> Metric:
    """Of all planned samples, epochs counted one by one."""
    return _share([(str(row["sample_id"]), 1) for row in planned], samples)


def share_of_tokens(planned: Sequence[Row], samples: Path) -> Metric:
    """Of all planned tokens, padding left out."""
    return _share([(str(row["sample_id"]), int(row["n_tokens"])) for row in planned], samples)


def _share(weights: Sequence[tuple[str, int]], samples: Path) -> Metric:
    plain = _plain(samples)
    if not weights or plain is None:
        return logs.missing("share", "batch_plan.parquet or prompts in samples.parquet")
    total = sum(weight for _, weight in weights)
    return Metric(value=sum(weight for i, weight in weights if i in plain) / total, unit="share")
