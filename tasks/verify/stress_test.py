"""Metrics of the `stress_test` stage from its artifacts alone: plan and worst batches are worked out again here."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.criteria import Metric
from tasks.verify import mix, packing, rehearsal
from tasks.verify import stress_ladder as ladder
from tasks.verify import training_logs as logs
from tasks.verify.interruptions import allowed, beyond

Rows = Sequence[Mapping[str, Any]]

WAYS = ("most_padded_tokens", "longest_sample", "heaviest_micro_batch")


def metrics(attempt_dir: Path, inputs: Mapping[str, Path], context: Mapping[str, Any]) -> dict[str, Metric]:
    """One metric per name of `specs/metrics`; what cannot be shown is null with a reason."""
    artifacts = attempt_dir / "artifacts"
    planned = logs.table(artifacts / "batch_plan.parquet")
    ran = logs.table(artifacts / "stress_plan.parquet")
    fed = logs.lines(artifacts / "micro_batches.jsonl")
    steps = logs.lines(artifacts / "metrics.jsonl")
    measured = logs.document(artifacts / "measurement.json")
    account = logs.document(artifacts / "account.json")
    training = context["parameters"]["training"]
    samples = inputs["data"] / "artifacts" / "samples.parquet"
    return {
        "worst_batches_unmeasured": _unmeasured(planned, fed, steps),
        "planned_samples_wrong": _planned_wrong(planned, samples, training, rehearsal.share_of(context)),
        "peak_bytes": _peak(measured, steps),
        "predicted_peak_bytes": _predicted(account),
        "peak_ratio": _ratio(measured, steps, account),
        "peak_ratio_low": _ratio(measured, steps, account),
        "usable_share": _share(measured, steps),
        "evaluation_peak_ratio": _evaluation(artifacts, steps),
        "nonfinite_steps": logs.nonfinite_steps(steps),
        "resume_loss_difference": _resume_difference(
            steps, artifacts / "resumed", allowed(logs.document(artifacts / "settings.json"))
        ),
        "seconds_per_step": _seconds_per_step(planned, ran, steps),
        "planned_hours": ladder.planned_hours(planned, ran, steps, samples),
        "settings_unexplained": ladder.unexplained_settings(artifacts, training),
        "out_of_memory": ladder.out_of_memory(artifacts),
        "memory_growth": ladder.growth(ran, steps),
        "driver_peak_bytes": ladder.driver_peak(steps, logs.lines(artifacts / "memory.jsonl")),
        "calibration_ratio": _calibration(artifacts, measured, account),
        "plain_text_share": mix.share_of_samples(planned, samples),
        "plain_text_token_share": mix.share_of_tokens(planned, samples),
        "padding_share": packing.padding_share(planned),
        "forward_passes": packing.forward_passes(planned),
    }


def _by_step(rows: Rows) -> dict[int, list[Mapping[str, Any]]]:
    found: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        found[int(row["step"])].append(row)
    return dict(found)


def _size(rows: Rows, way: str) -> int:
    """How bad a step is in one way, in tokens."""
    if way == "longest_sample":
        return max(int(row["n_tokens"]) for row in rows)
    batches: Counter[tuple[int, int]] = Counter()
    for row in rows:
        batches[int(row["rank"]), int(row["micro_batch"])] += int(row["padded_tokens"])
    return max(batches.values()) if way == "heaviest_micro_batch" else batches.total()


def _shape(rows: Rows) -> tuple[tuple[str, ...], ...]:
    """The samples of a step, micro batch by micro batch, each on its rank, in order."""
    found: dict[tuple[int, int], list[str]] = defaultdict(list)
    for row in sorted(rows, key=lambda r: (int(r["micro_batch"]), int(r["rank"]), int(r["position"]))):
        found[int(row["micro_batch"]), int(row["rank"])].append(str(row["sample_id"]))
    return tuple(tuple(ids) for _, ids in sorted(found.items()))


def _unmeasured(planned: Rows, fed: Rows, steps: Rows) -> Metric:
    """Ways to be the worst for which no step that bad was fed, micro batch by micro batch, and finished."""
    if not planned:
        return logs.missing("batches", "batch_plan.parquet")
    by_step = _by_step(planned)
    finished = {int(line["step"]) for line in steps}
    batches: dict[int, dict[tuple[int, int], tuple[str, ...]]] = defaultdict(dict)
    for line in fed:
        place = int(line["micro_batch"]), int(line.get("rank", 0))
        batches[int(line["step"])][place] = tuple(line["sample_ids"])
    shapes = {tuple(b for _, b in sorted(found.items())) for step, found in batches.items() if step in finished}
    measured = [rows for rows in by_step.values() if _shape(rows) in shapes]
    missing = 0
    for way in WAYS:
        worst = max(_size(rows, way) for rows in by_step.values())
        missing += not any(_size(rows, way) == worst for rows in measured)
    return Metric(value=missing, unit="batches")


def _planned_wrong(planned: Rows, samples: Path, training: Mapping[str, Any], share: float | None) -> Metric:
    """Training samples that a whole epoch does not hold exactly once, strangers, and wrong lengths.

    With a mix of objectives plain text has its turn. In a rehearsal an epoch holds a `share` of them, and what is
    missing of a fair part counts.
    """
    import pyarrow.parquet as pq

    if not planned or not samples.is_file():
        return logs.missing("samples", "batch_plan.parquet or samples.parquet")
    names = set(pq.read_schema(samples).names)
    columns = [n for n in ("sample_id", "split", "n_tokens", "kind", "fault_type", "prompt") if n in names]
    table = pq.read_table(samples, columns=columns).to_pylist()
    mine = mix.admitted([r for r in table if r["split"] == "train"], training)
    used = {str(row["sample_id"]) for row in planned}
    turns = mix.by_turns(mine, training)
    wrong = mix.turns_wrong(planned, training, turns if share is None else turns & used)
    if share is not None:
        wrong += rehearsal.part_wrong([r for r in mine if r["sample_id"] not in turns], used - turns, share)
    lengths = {r["sample_id"]: int(r["n_tokens"]) for r in mine if share is None or r["sample_id"] in used}
    epochs: dict[int, Counter[str]] = defaultdict(Counter)
    for row in planned:
        epochs[int(row["epoch"])][str(row["sample_id"])] += 1
    last = max(epochs)
    for epoch, counts in epochs.items():
        wrong += sum(n if sample_id not in lengths else n - 1 for sample_id, n in counts.items())
        cut = epoch == last and training.get("max_steps") is not None
        wrong += 0 if cut else len(lengths.keys() - counts.keys() - turns)
    wrong += sum(int(row["n_tokens"]) != lengths.get(row["sample_id"]) for row in planned)
    wrong += sum(int(row["padded_tokens"]) < int(row["n_tokens"]) for row in planned)
    wrong += _steps_off_size(planned, training) + packing.rows_wrong(planned, training)
    return Metric(value=wrong, unit="samples")


def _steps_off_size(planned: Rows, training: Mapping[str, Any]) -> int:
    """Samples too few or too many in steps that are not the only partial one of their epoch."""
    size = int(training["micro_batch"]) * int(training["gradient_accumulation"])
    partial: Counter[int] = Counter()
    wrong = 0
    for rows in _by_step(planned).values():
        epoch = int(rows[0]["epoch"])
        if len(rows) > size:
            wrong += len(rows) - size
        elif len(rows) < size:
            partial[epoch] += 1
            wrong += (size - len(rows)) if partial[epoch] > 1 else 0
    return wrong


def _peak_bytes(measured: Mapping[str, Any], steps: Rows) -> int | None:
    """The highest phase; the training steps are read again from metrics.jsonl."""
    if not measured.get("phases") or not steps:
        return None
    return max(*(int(v) for v in measured["phases"].values()), *(int(line["memory_bytes"]) for line in steps))


def _peak(measured: Mapping[str, Any], steps: Rows) -> Metric:
    peak = _peak_bytes(measured, steps)
    return logs.missing("bytes", "measurement.json") if peak is None else Metric(value=peak, unit="bytes")


def _predicted(account: Mapping[str, Any]) -> Metric:
    value = account.get("predicted_peak_bytes")
    return logs.missing("bytes", "account.json") if value is None else Metric(value=int(value), unit="bytes")


def _ratio(measured: Mapping[str, Any], steps: Rows, account: Mapping[str, Any]) -> Metric:
    peak, predicted = _peak_bytes(measured, steps), account.get("predicted_peak_bytes")
    if peak is None or not predicted:
        return logs.missing("share", "measurement.json or account.json")
    return Metric(value=round(peak / int(predicted), 6), unit="share")


def _share(measured: Mapping[str, Any], steps: Rows) -> Metric:
    """On a GPU the reserved bytes count: what is cached is not free for anyone else."""
    peak, usable = _peak_bytes(measured, steps), measured.get("usable_bytes")
    if peak is None or not usable:
        return logs.missing("share", "measurement.json")
    return Metric(value=round(max(peak, int(measured.get("peak_reserved_bytes") or 0)) / int(usable), 6), unit="share")


def _evaluation(artifacts: Path, steps: Rows) -> Metric:
    peaks = [int(m["peak_bytes"]) for m in logs.lines(artifacts / "memory.jsonl") if m["phase"] == "evaluate"]
    if not peaks or not steps:
        return logs.missing("share", "the evaluation in memory.jsonl")
    return Metric(value=round(max(peaks) / max(int(line["memory_bytes"]) for line in steps), 6), unit="share")


def _resume_difference(straight: Rows, resumed: Path, share: float) -> Metric:
    """Largest loss difference over the steps after the save, beyond the `share` that the device computes differently
    anyway; the resumed worker must have begun at a checkpoint."""
    sessions, after = logs.lines(resumed / "sessions.jsonl"), logs.lines(resumed / "metrics.jsonl")
    start = int(sessions[-1]["from_step"]) if sessions else 0
    wanted = {line["step"]: line["loss"] for line in straight if line["step"] > start}
    found = {line["step"]: line["loss"] for line in after if line["step"] > start}
    if start == 0 or not wanted or wanted.keys() != found.keys() or None in (*wanted.values(), *found.values()):
        return logs.missing("nats/token", "a resumed run with the same steps")
    return Metric(value=max(beyond(wanted[s], found[s], share) for s in wanted), unit="nats/token")


def _seconds_per_step(planned: Rows, ran: Rows, steps: Rows) -> Metric:
    """Median over the runs of the step with the most padded tokens."""
    if not planned or not ran or not steps:
        return logs.missing("s", "stress_plan.parquet or metrics.jsonl")
    sizes = {step: _size(rows, "most_padded_tokens") for step, rows in _by_step(ran).items()}
    heaviest = max(sizes.values())
    return logs.median_of([line for line in steps if sizes.get(int(line["step"])) == heaviest], "seconds", "s")


def _calibration(artifacts: Path, measured: Mapping[str, Any], account: Mapping[str, Any]) -> Metric:
    """Measured over predicted bytes beside the framework; null when `calibration.json` says something else."""
    predicted = account.get("peak_reserved_bytes")
    if not measured or not predicted:
        return logs.missing("share", "measurement.json or account.json")
    held = int(measured["peak_bytes"]) - int(measured["baseline_bytes"])
    if measured["device"] == "cuda":
        held = int(measured["peak_reserved_bytes"] or measured["peak_bytes"])
    ratio = round(held / int(predicted), 6)
    said = logs.document(artifacts / "calibration.json").get("ratio", ratio)
    if said != ratio:
        return Metric(value=None, unit="share", reason=f"calibration.json says {said}, it is {ratio}")
    return Metric(value=ratio, unit="share")
