"""What a stress test measured, in place of what is predicted. Pure.

The stress test runs a step of every length bucket of the batch plan. Its configuration gets these times as they are;
others get their prediction times the ratio of measured to predicted, and say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from specs.base import Strict
from specs.parameters import TrainingConfiguration
from tasks.planning.plans import Configuration, Seconds

SPREAD = 0.10
"""Half the width of the interval around a measured time: what a run may differ from its stress test."""
SCALED_SPREAD = 0.25
"""Around the time of a configuration that was not run itself."""


class Measured(Strict):
    """An average step of the whole plan, by bucket where each was run, and the configuration that was run."""

    training: TrainingConfiguration
    seconds_per_step: float = Field(gt=0)
    steps: int = Field(ge=1, description="planned optimizer steps that the average stands for")
    buckets_without_time: int = Field(0, ge=0, description="buckets that were not run: they get the mean rate")

    def is_of(self, configuration: Configuration) -> bool:
        """Whether a candidate is the configuration that was run, in everything that changes its time."""
        t, c = self.training, configuration
        same = (t.method, t.weights, t.compute, t.optimizer, t.activation_checkpointing, t.attention, t.micro_batch)
        mine = (c.method, c.weights, c.compute, c.optimizer, c.activation_checkpointing, c.attention, c.micro_batch)
        return same == mine and c.cards == 1 and t.effective_batch == c.effective_batch


def measured_of(training: TrainingConfiguration, buckets: Sequence[Mapping[str, Any]]) -> Measured | None:
    """From the buckets of `measurement.json`; null where no bucket was timed.

    A bucket that was not run takes its padded tokens over the mean rate of the others.
    """
    timed = [b for b in buckets if b.get("seconds_per_step") and b.get("planned_steps")]
    rates = [float(b["padded_tokens_per_second"]) for b in timed if b.get("padded_tokens_per_second")]
    if not timed or not rates:
        return None
    rate = sum(rates) / len(rates)
    seconds, steps, missing = 0.0, 0, 0
    for bucket in buckets:
        count = int(bucket.get("planned_steps") or 0)
        if bucket.get("seconds_per_step"):
            seconds += count * float(bucket["seconds_per_step"])
        else:
            seconds += float(bucket.get("planned_padded_tokens") or 0) / rate
            missing += count > 0
        steps += count
    return Measured(training=training, seconds_per_step=seconds / steps, steps=steps, buckets_without_time=missing)


def with_measurement(seconds: Seconds, configuration: Configuration, measured: Measured, predicted: Seconds) -> Seconds:
    """`seconds` of a candidate beside the measurement; `predicted` is what was predicted for the measured one."""
    if measured.is_of(configuration):
        expected, spread = measured.seconds_per_step, SPREAD
        source = "measured"
    else:
        expected = seconds.expected * measured.seconds_per_step / predicted.expected
        spread, source = SCALED_SPREAD, "scaled"
    times = expected / seconds.expected
    return Seconds(
        expected=expected,
        low=expected * (1 - spread),
        high=expected * (1 + spread),
        parts={name: part * times for name, part in seconds.parts.items()},
        bound=seconds.bound,
        source=source,  # type: ignore[arg-type]
    )
