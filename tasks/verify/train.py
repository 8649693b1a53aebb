"""Metrics of the `train` stage from its artifacts and those of the stages before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.canonical import digest_folder, sha256_file
from specs.criteria import Metric
from specs.parameters import leaves
from tasks.verify import training_logs as logs
from tasks.verify.interruptions import interruptions
from tasks.verify.tensors import adapter_norm, model_change, trained_folder


def metrics(attempt_dir: Path, inputs: Mapping[str, Path], context: Mapping[str, Any]) -> dict[str, Metric]:
    """One metric per name of `specs/metrics`; what cannot be shown is null with a reason."""
    artifacts, stress = attempt_dir / "artifacts", inputs["stress_test"] / "artifacts"
    planned, lines = logs.table(stress / "batch_plan.parquet"), logs.lines(artifacts / "metrics.jsonl")
    fed, sessions = logs.lines(artifacts / "micro_batches.jsonl"), logs.lines(artifacts / "sessions.jsonl")
    settings = logs.document(artifacts / "settings.json")
    return {
        "steps_missing": logs.steps_missing(planned, lines),
        "nonfinite_steps": logs.nonfinite_steps(lines),
        "order_mismatches": logs.order_mismatches(planned, fed),
        "samples_off_census": logs.samples_off_census(planned, fed),
        "fingerprint_mismatches": _fingerprint_mismatches(settings, stress),
        "settings_without_effect": _settings_without_effect(settings, context),
        "parent_mismatches": _parent_mismatches(settings, context),
        "adapter_change": _adapter_change(artifacts, context),
        "loss_trend": logs.loss_trend(lines),
        "peak_over_stress": _peak_over_stress(lines, stress),
        **interruptions(artifacts, context.get("confirmed") or ()),
        "resumes": Metric(value=max(len(sessions) - 1, 0), unit="count"),
        "training_hours": _training_hours(lines),
        "steps_taken": Metric(value=len(lines), unit="steps"),
        "peak_bytes": logs.largest(lines, "memory_bytes", "bytes"),
    }


def _fingerprint_mismatches(settings: Mapping[str, Any], stress: Path) -> Metric:
    """Requested settings, base model, samples, device and numeric libraries of both stages, and the plan trained on."""
    measured = logs.document(stress / "settings.json")
    if not settings or not measured:
        return logs.missing("count", "settings.json of train or stress_test")

    def flat(found: Mapping[str, Any]) -> dict[str, Any]:
        libraries = {k: found["versions"].get(k) for k in ("torch", "transformers", "peft", "accelerate")}
        same = {k: found[k] for k in ("fingerprint", "base_model_sha256", "samples_sha256")}
        return {**found["requested"], **libraries, **same, "device": found["device"]["name"]}

    ours, theirs = flat(settings), flat(measured)
    differing = sum(ours.get(k) != theirs.get(k) for k in ours.keys() | theirs.keys())
    other_plan = settings["plan_sha256"] != sha256_file(stress / "batch_plan.parquet")
    return Metric(value=differing + other_plan, unit="count")


def _settings_without_effect(settings: Mapping[str, Any], context: Mapping[str, Any]) -> Metric:
    """Requested is what the approved parameters say, not what the worker says was requested."""
    effective = settings.get("effective")
    if not effective:
        return logs.missing("count", "settings.json")
    asked = leaves(context["parameters"]["training"])
    if asked["method"] == "full":
        asked = {k: v for k, v in asked.items() if not k.startswith("lora.")}
    return Metric(value=sum(k not in effective or effective[k] != v for k, v in asked.items()), unit="count")


def _parent_mismatches(settings: Mapping[str, Any], context: Mapping[str, Any]) -> Metric:
    """What training says it began with, against the parent in the frozen spec and that parent's files as they are."""
    if not settings:
        return logs.missing("count", "settings.json")
    record = context["spec"].get("parent_record") if context.get("spec") else None
    began = settings.get("parent_sha256")
    if record is None:
        return Metric(value=int(began is not None), unit="count")
    folder = Path(context["project_dir"]) / record["folder"] / "adapter"
    if not folder.is_dir():
        return logs.missing("count", f"the adapter of parent {record['named']}")
    wrong = (began != record["weights_sha256"]) + (digest_folder(folder) != record["weights_sha256"])
    wrong += settings.get("base_model_sha256") != record["base_model_sha256"]
    return Metric(value=wrong, unit="count")


def _adapter_change(artifacts: Path, context: Mapping[str, Any]) -> Metric:
    for kind, folder in trained_folder(artifacts):
        if kind == "adapter":
            return Metric(value=adapter_norm(folder), unit="norm")
        return Metric(value=model_change(folder, Path(context["base_model"])), unit="norm")
    return logs.missing("norm", "adapter/ or model/")


def _peak_over_stress(lines: Sequence[Mapping[str, Any]], stress: Path) -> Metric:
    ours = logs.largest(lines, "memory_bytes", "bytes").value
    theirs = logs.document(stress / "measurement.json").get("peak_bytes")
    if ours is None or not theirs:
        return logs.missing("share", "a peak in metrics.jsonl or in measurement.json of the stress test")
    return Metric(value=ours / float(theirs), unit="share")


def _training_hours(lines: Sequence[Mapping[str, Any]]) -> Metric:
    if not lines:
        return logs.missing("h", "metrics.jsonl")
    return Metric(value=sum(float(line["seconds"]) for line in lines) / 3600, unit="h")
