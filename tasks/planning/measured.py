"""What a stress test measured, in place of what is predicted. Pure.

The stress test runs a step of every length bucket of the batch plan. Its configuration gets these times as they are;
others get their prediction times the ratio of measured to predicted seconds per padded token, and say so. A measurement
is of one model on one device: who calls this gives none for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from specs.base import Strict
from specs.parameters import TrainingConfiguration
from tasks.planning.plans import Configuration, Seconds, TimeSource

SPREAD = 0.10
"""Half the width of the interval around a measured time: what a run may differ from its stress test."""
SCALED_SPREAD = 0.25
"""Around the time of a configuration that was not run itself."""


class Measured(Strict):
    """An average step of the whole plan, by bucket where each was run, and the configuration that was run."""

    training: TrainingConfiguration
    seconds_per_step: float = Field(gt=0)
    steps: int = Field(ge=1, description="planned optimizer steps that the average stands for")
    padded_tokens_per_step: float = Field(gt=0)
    buckets_without_time: int = Field(0, ge=0, description="buckets that were not run: they get the mean rate")

    def is_of(self, configuration: Configuration) -> bool:
        """Whether a candidate is the configuration that was run, in everything that changes its time.

        Candidates pack nothing and put no bound on the tokens of a step. That a length limit leaves no sample out is
        for the caller to see.
        """
        t = self.training
        bounded = t.packing or t.max_tokens_per_step or t.max_tokens_per_micro_batch or t.plain_text_share is not None
        return not bounded and configuration_of(t, configuration) == configuration


def configuration_of(training: TrainingConfiguration, like: Configuration) -> Configuration:
    """A training configuration as a candidate; its length is that of `like`."""
    t = training
    return like.model_copy(
        update={
            "method": t.method,
            "weights": t.weights,
            "compute": t.compute,
            "optimizer": t.optimizer,
            "micro_batch": t.micro_batch,
            "gradient_accumulation": max(1, t.gradient_accumulation // t.ranks),
            "activation_checkpointing": t.activation_checkpointing,
            "attention": t.attention,
            "data_ranks": t.ranks,
            "sharding": t.sharding if t.ranks > 1 else "none",
            "offload": "none",
            "tensor_parallel": 1,
            "pipeline_stages": 1,
        }
    )


def measured_of(training: TrainingConfiguration, buckets: Sequence[Mapping[str, Any]]) -> Measured | None:
    """From the buckets of `measurement.json`; null where no bucket was timed.

    A bucket that was not run takes its padded tokens over the mean rate of the others.
    """
    timed = [b for b in buckets if b.get("seconds_per_step") and b.get("planned_steps")]
    rates = [float(b["padded_tokens_per_second"]) for b in timed if b.get("padded_tokens_per_second")]
    if not timed or not rates:
        return None
    rate = sum(rates) / len(rates)
    seconds, steps, tokens, missing = 0.0, 0, 0.0, 0
    for bucket in buckets:
        count = int(bucket.get("planned_steps") or 0)
        if bucket.get("seconds_per_step"):
            seconds += count * float(bucket["seconds_per_step"])
        else:
            seconds += float(bucket.get("planned_padded_tokens") or 0) / rate
            missing += count > 0
        steps += count
        tokens += float(bucket.get("planned_padded_tokens") or 0)
    if not tokens:
        return None
    return Measured(
        training=training,
        seconds_per_step=seconds / steps,
        steps=steps,
        padded_tokens_per_step=tokens / steps,
        buckets_without_time=missing,
    )


def with_measurement(seconds: Seconds, measured: Measured, predicted_per_token: float, *, own: bool) -> Seconds:
    """`seconds` of a candidate beside the measurement; `own`: it is the configuration that was run, with all samples.

    `predicted_per_token`: seconds for a padded token that were predicted for the measured one.
    """
    source: TimeSource = "measured" if own else "scaled"
    if own:
        expected, spread = measured.seconds_per_step, SPREAD
    else:
        per_token = measured.seconds_per_step / measured.padded_tokens_per_step
        expected = seconds.expected * per_token / predicted_per_token
        spread = SCALED_SPREAD
    times = expected / seconds.expected
    return Seconds(
        expected=expected,
        low=expected * (1 - spread),
        high=expected * (1 + spread),
        parts={name: part * times for name, part in seconds.parts.items()},
        bound=seconds.bound,
        source=source,
    )
