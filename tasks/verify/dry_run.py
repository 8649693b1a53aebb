"""Metrics of the `dry_run` stage from its artifacts alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.criteria import Metric
from tasks.verify import packing
from tasks.verify import training_logs as logs
from tasks.verify.interruptions import allowed, beyond
from tasks.verify.tensors import differing_tensors, trained_folder
from tasks.verify.training_checks import ended_share, masked_token_effect, regrouping_difference
from tasks.verify.trends import loss_noise, slowest_length, tokens_per_second, trend_certainty
from tasks.verify.trials import trial_metrics


def metrics(attempt_dir: Path, inputs: Mapping[str, Path], context: Mapping[str, Any]) -> dict[str, Metric]:
    """One metric per name of `specs/metrics`; what cannot be shown is null with a reason."""
    artifacts = attempt_dir / "artifacts"
    planned, lines = logs.table(artifacts / "batch_plan.parquet"), logs.lines(artifacts / "metrics.jsonl")
    checked, settings = logs.document(artifacts / "checks.json"), logs.document(artifacts / "settings.json")
    packed, training = logs.document(artifacts / "packing.json"), context["parameters"]["training"]
    return {
        "steps_missing": logs.steps_missing(planned, lines),
        "nonfinite_steps": logs.nonfinite_steps(lines),
        "probe_loss_change": _probe_loss_change(logs.document(artifacts / "probe.json")),
        "loss_trend": logs.loss_trend(lines),
        "loss_trend_certainty": trend_certainty(lines),
        "loss_noise": loss_noise(lines),
        "order_mismatches": logs.order_mismatches(planned, logs.lines(artifacts / "micro_batches.jsonl")),
        "masked_end_tokens": _masked_end_tokens(logs.lines(artifacts / "fed.jsonl")),
        "packed_samples_touched": packing.samples_touched(planned, packed, training),
        "packed_loss_difference": packing.loss_difference(planned, packed, training),
        "regrouping_difference": regrouping_difference(checked, settings, planned),
        "masked_token_effect": masked_token_effect(checked, settings, planned),
        "ended_share": ended_share(logs.lines(artifacts / "generated.jsonl"), _samples(inputs)),
        "resume_loss_difference": _resume_loss_difference(lines, artifacts / "resumed", settings),
        "resume_weight_difference": _resume_weight_difference(artifacts, settings),
        "memory_growth": _memory_growth(lines),
        "steps_taken": Metric(value=len(lines), unit="steps"),
        "seconds_per_step": logs.median_of(lines, "seconds", "s"),
        "tokens_per_second": tokens_per_second(lines),
        "slowest_length_tokens_per_second": slowest_length(planned, lines),
        "peak_bytes": logs.largest(lines, "memory_bytes", "bytes"),
        **trial_metrics(planned, artifacts, _samples(inputs), context["parameters"]),
    }


def _samples(inputs: Mapping[str, Path]) -> Path | None:
    return inputs["data"] / "artifacts" / "samples.parquet" if "data" in inputs else None


def _probe_loss_change(probe: Mapping[str, Any]) -> Metric:
    if probe.get("before") is None or probe.get("after") is None:
        return logs.missing("nats/token", "probe.json")
    return Metric(value=float(probe["after"]) - float(probe["before"]), unit="nats/token")


def _masked_end_tokens(fed: Sequence[Mapping[str, Any]]) -> Metric:
    """Samples in which an answer does not end with the end token as learnt, or whose padding is learnt."""
    if not fed:
        return logs.missing("samples", "fed.jsonl")

    def right(line: Mapping[str, Any]) -> bool:
        ends = line["last_token"] == line["last_label"] == line["end_token"] and not line.get("ends_masked", 0)
        return bool(ends and line["learnt_padding"] == 0)

    return Metric(value=sum(not right(line) for line in fed), unit="samples")


def _resume_loss_difference(
    straight: Sequence[Mapping[str, Any]], resumed: Path, settings: Mapping[str, Any]
) -> Metric:
    """Largest difference over the steps trained after the kill, beyond what the device computes differently anyway.
    Needs a session that began at a checkpoint."""
    unit = "nats/token"
    sessions, after = logs.lines(resumed / "sessions.jsonl"), logs.lines(resumed / "metrics.jsonl")
    if len(sessions) < 2 or not after:
        return logs.missing(unit, "the resumed run")
    start = int(sessions[-1]["from_step"])
    wanted = {line["step"]: line["loss"] for line in straight if line["step"] > start}
    found = {line["step"]: line["loss"] for line in after if line["step"] > start}
    if start == 0 or not wanted or wanted.keys() != found.keys():
        return Metric(value=None, unit=unit, reason=f"the resumed run does not cover the steps after {start}")
    if any(wanted[step] is None or found[step] is None for step in wanted):
        return Metric(value=None, unit=unit, reason="a loss is not finite")
    share = allowed(settings)
    return Metric(value=max(beyond(wanted[step], found[step], share) for step in wanted), unit=unit)


def _resume_weight_difference(artifacts: Path, settings: Mapping[str, Any]) -> Metric:
    share = allowed(settings)
    straight, resumed = dict(trained_folder(artifacts)), dict(trained_folder(artifacts / "resumed"))
    if not straight or straight.keys() != resumed.keys():
        return logs.missing("tensors", "what was trained, straight or resumed,")
    return Metric(value=sum(differing_tensors(straight[k], resumed[k], share) for k in straight), unit="tensors")


def _memory_growth(lines: Sequence[Mapping[str, Any]]) -> Metric:
    """Of the memory held between steps, which does not depend on a step's length as its peak does."""
    held = [float(line["held_bytes"]) for line in lines if line.get("held_bytes") is not None]
    third = len(held) // 3
    if third < 1:
        return logs.missing("share", "held_bytes of three steps in metrics.jsonl")
    middle, last = held[third : 2 * third], held[-third:]
    return Metric(value=statistics.median(last) / statistics.median(middle) - 1, unit="share")
