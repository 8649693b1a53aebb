"""Rows that samples share, worked out again from a plan, and what a worker saw of them. Shares no code with either."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from specs.criteria import Metric
from tasks.verify import training_logs as logs
from tasks.verify.applicable import not_applicable

Line = Mapping[str, Any]


def _batches(planned: Sequence[Line]) -> dict[tuple[int, int, int], dict[int, list[Line]]]:
    """Rows by their number, micro batch by micro batch; plans of earlier versions have a row for every sample."""
    found: dict[tuple[int, int, int], dict[int, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in planned:
        at = (int(line["step"]), int(line["rank"]), int(line["micro_batch"]))
        found[at][int(line.get("row", line["position"]))].append(line)
    return found


def rows_wrong(planned: Sequence[Line], training: Mapping[str, Any]) -> int:
    """Samples that overlap, leave a gap, or stand past the limit of a row; unequal rows of one micro batch, and
    more of them than `micro_batch`, or than fill it up where that was asked for.

    Without packing, samples that share a row at all.
    """
    packing, limit = bool(training.get("packing", False)), int(training["max_length"])
    most_tokens = int(training.get("max_tokens_per_micro_batch") or limit * int(training["micro_batch"]))
    wrong = 0
    for rows in _batches(planned).values():
        widths = set()
        for samples in rows.values():
            end = 0
            for line in sorted(samples, key=lambda s: int(s.get("start", 0))):
                start = int(line.get("start", 0))
                wrong += start != end or (start > 0 and not packing)
                wrong += packing and start + int(line["n_tokens"]) > limit
                end = start + int(line["n_tokens"])
            widths.add(sum(int(s["padded_tokens"]) for s in samples))
        wrong += len(widths) - 1
        if training.get("fill_micro_batches"):
            wrong += len(rows) * max(widths) > most_tokens
        else:
            wrong += len(rows) > int(training["micro_batch"])
    return wrong


def padding_share(planned: Sequence[Line]) -> Metric:
    """Of the tokens of all planned micro batches, those that are padding."""
    total = sum(int(line["padded_tokens"]) for line in planned)
    if not total:
        return logs.missing("share", "batch_plan.parquet")
    return Metric(value=1 - sum(int(line["n_tokens"]) for line in planned) / total, unit="share")


def forward_passes(planned: Sequence[Line]) -> Metric:
    """Micro batches of the whole plan."""
    if not planned:
        return logs.missing("micro batches", "batch_plan.parquet")
    return Metric(value=len(_batches(planned)), unit="micro batches")


def samples_touched(planned: Sequence[Line], seen: Mapping[str, Any], training: Mapping[str, Any]) -> Metric:
    """Samples whose logits changed with another sample of their row; 0 where no samples share a row."""
    unit, reason = "samples", _unseen(planned, seen, training)
    if reason is not None:
        return Metric(value=None, unit=unit, reason=reason) if reason else Metric(value=0, unit=unit)
    later = [s for s in seen["samples"] if int(s["start"]) > 0]
    return Metric(value=sum(s["logit_difference"] != 0.0 for s in later), unit=unit)


def loss_difference(planned: Sequence[Line], seen: Mapping[str, Any], training: Mapping[str, Any]) -> Metric:
    """Largest difference between the loss of a sample in a shared row and alone; 0 where no samples share a row."""
    unit, reason = "nats/token", _unseen(planned, seen, training)
    if reason is not None:
        alone = not_applicable(unit, "no samples share a row", 0.0)
        return Metric(value=None, unit=unit, reason=reason) if reason else alone
    pairs = [(s["loss"], s["loss_alone"]) for s in seen["samples"]]
    if any(value is None for pair in pairs for value in pair):
        return Metric(value=None, unit=unit, reason="a loss is not finite")
    return Metric(value=max(abs(shared - alone) for shared, alone in pairs), unit=unit)


def _unseen(planned: Sequence[Line], seen: Mapping[str, Any], training: Mapping[str, Any]) -> str | None:
    """Why nothing was seen: empty where no samples share a row, null where a whole planned micro batch was seen."""
    if not planned:
        return "batch_plan.parquet is missing or empty"
    shared = [rows for rows in _batches(planned).values() if any(len(samples) > 1 for samples in rows.values())]
    if not shared:
        return ""
    if not seen.get("samples"):
        return "samples share rows, and packing.json is missing or empty"
    if seen.get("attention") != {"flash": "flash_attention_2"}.get(training["attention"], training["attention"]):
        return f"packing.json is of attention {seen.get('attention')}, not of {training['attention']}"
    shown = {(s["sample_id"], int(s["row"]), int(s["start"])) for s in seen["samples"]}
    for rows in shared:
        if shown == {(s["sample_id"], row, int(s["start"])) for row, samples in rows.items() for s in samples}:
            return None
    return "packing.json shows no planned micro batch"
