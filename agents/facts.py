"""Numbers that the rules reason from, read out of evidence, source summaries and the model folder. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.contract import ProposerContext
from agents.operations import tensors_of
from specs.parameters import TrainingConfiguration
from tasks.data.objectives import samples_per_epoch

_KEPT_SHARE = 0.85
"""Rows that usually survive quarantine and deduplication; only used until somebody has looked at the records."""

_KEPT_OF_DISTINCT = 0.95
"""Usable records, equal ones counted once, that stay when near duplicates and leakage are taken out too."""


@dataclass(frozen=True)
class DataFacts:
    """Samples and tokens of the training data. `counted` is false while they are estimated from the sources.

    The tokens are then those of a sample of the records; null where nobody has looked.
    """

    train: int
    evaluation: int
    longest: int | None
    mean: float | None
    counted: bool
    plain: Mapping[str, int] = field(default_factory=dict)
    """Training samples that are plain text, by kind; empty until they are counted."""

    def per_epoch(self, training: TrainingConfiguration) -> int:
        """Training samples of an epoch under the mix of objectives of a configuration."""
        share, kinds = training.plain_text_share, training.plain_text_kinds
        if not self.counted or (share is None and kinds is None):
            return self.train
        texts = sum(n for kind, n in self.plain.items() if kinds is None or kind in kinds)
        return samples_per_epoch(self.train - sum(self.plain.values()), texts, share)


def data_facts(context: ProposerContext) -> DataFacts:
    """What the data stage counted; before it ran, an estimate from the rows of the sources."""
    evidence = context.evidence.get("data")
    if evidence is None:
        return _estimated(context)

    def value(name: str) -> float | None:
        metric = evidence.metrics.get(name)
        return metric.value if metric else None

    longest = value("longest_sample")
    return DataFacts(
        train=int(value("samples_train") or 0),
        evaluation=int(value("samples_eval") or 0),
        longest=int(longest) if longest else None,
        mean=mean_tokens(context.lengths),
        counted=True,
        plain=dict(context.lengths.get("plain_text", {}).get("train", {})),
    )


def source_rows(context: ProposerContext) -> int:
    """Rows of tables and blocks of documents, as the probe counted them; sensor logs are counted in windows later."""
    return sum(int(s.get("rows") or 0) for s in context.source_summaries if s.get("kind") != "sensor_logs")


def has_sensor_logs(context: ProposerContext) -> bool:
    """Whether some rows will be windows, whose number is only known once the logs are cut."""
    return any(s.get("kind") == "sensor_logs" for s in context.source_summaries)


def _estimated(context: ProposerContext) -> DataFacts:
    found = context.survey
    rows = source_rows(context) * _KEPT_SHARE
    kept = math.floor(found["distinct"] * _KEPT_OF_DISTINCT if found.get("complete") else rows)
    proposed = context.approved.get("data")
    setting = (proposed.parameters if proposed else context.spec.stages.get("data", {})).get("eval_share")
    share = float(setting) if isinstance(setting, int | float) else 0.1
    evaluation = min(kept, max(1, round(kept * share)))
    longest, mean = found.get("longest_tokens"), found.get("mean_tokens")
    return DataFacts(train=kept - evaluation, evaluation=evaluation, longest=longest, mean=mean, counted=False)


def mean_tokens(lengths: Mapping[str, Any]) -> float | None:
    """Mean tokens per training sample in summary.json, under `tokens.mean` or `mean_tokens`."""
    tokens = lengths.get("tokens")
    found = tokens.get("mean") if isinstance(tokens, Mapping) else lengths.get("mean_tokens")
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def parameter_count(model: Path | None) -> int | None:
    """Parameters of a local model folder, from the headers of its safetensors files; null where there are none."""
    tensors = tensors_of(model) if model is not None and model.is_dir() else {}
    return sum(math.prod(shape) for _, shape in tensors.values()) or None


def seconds_per_operation(device: Mapping[str, Any]) -> float | None:
    """Rough seconds of a floating-point operation in matrix products; null where nothing is known of the device.

    CPU: 4.7e10 operations per second and core, from LoRA training of a 135M model in fp32: 6.5e10 were measured when a
    token counted as 6 operations for each parameter, and it takes 4.35 of them, as `agents.operations` counts. GPU:
    0.35 of its dense bf16 rate where the device facts name one (`tflops`). The stress test replaces this.
    """
    if device.get("kind", "cpu") == "cpu":
        return 1 / (4.7e10 * int(device.get("physical_cores") or 2))
    tflops = device.get("tflops")
    return 1 / (float(tflops) * 1e12 * 0.35) if tflops else None


SECONDS_PER_MICRO_BATCH = 0.04
"""What a forward and backward pass costs beside its arithmetic; decides only for models of a few million parameters."""
