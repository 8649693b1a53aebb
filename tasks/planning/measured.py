"""What a stress test measured, in place of what is predicted. Pure.

The stress test runs the worst batch and a step of every length bucket of the batch plan. Its configuration gets the
peak and the times that were measured. Other configurations get their predicted times scaled by measured over predicted
seconds for a padded token; their memory is the account, corrected by the rule of `tasks/stress/calibration.py` where it
is of the same kind of training and the measurement did not confirm the account. A measurement is of one model on one
device: who calls this gives none for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from specs.base import Strict
from specs.parameters import TrainingConfiguration
from specs.proposals import Calibration
from tasks.memory.account import Account
from tasks.planning.plans import Configuration, Limits, Seconds, TimeSource
from tasks.stress.calibration import read_calibration

SPREAD = 0.10
"""Half the width of the interval around a measured time: what a run may differ from its stress test."""
SCALED_SPREAD = 0.25
"""Around the time of a configuration that was not run itself."""


class Times(Strict):
    """An average step of the whole plan, by bucket where each was run."""

    seconds_per_step: float = Field(gt=0)
    steps: int = Field(ge=1, description="planned optimizer steps that the average stands for")
    padded_tokens_per_step: float = Field(gt=0)
    buckets_without_time: int = Field(0, ge=0, description="buckets that were not run: they get the mean rate")


class Peak(Strict):
    """What the process held at its peak: `framework_bytes` before the model, the rest beside it."""

    process_bytes: int = Field(gt=0)
    framework_bytes: int = Field(ge=0)
    predicted_bytes: int = Field(gt=0, description="what the account of the same batch said")
    confirmed: bool = Field(description="near enough to the account that others need no correction")
    calibration: Calibration

    @property
    def held_bytes(self) -> int:
        """Beside the framework."""
        return self.process_bytes - self.framework_bytes


class Measured(Strict):
    """The configuration that a stress test ran, and what it measured."""

    training: TrainingConfiguration
    times: Times | None = Field(None, description="null: no bucket was timed")
    peak: Peak | None = Field(None, description="null: its record of memory is not there")

    def is_of(self, configuration: Configuration, limits: Limits) -> bool:
        """Whether a candidate is the configuration that was run, in everything that changes its time or memory.

        Candidates pack and mix nothing, and no bound on the tokens of a step divides theirs. That a length limit leaves
        no sample out is for the caller to see.
        """
        t = self.training
        other = t.packing or t.plain_text_share is not None or _divides(t)
        same = configuration_of(t, configuration) == configuration
        return not other and same and (t.method == "full" or _adapters_are(t, limits))

    def is_kin_of(self, configuration: Configuration) -> bool:
        """Whether what it taught about memory holds for a candidate: as `calibration.key_of`, on the same device."""
        t, c = self.training, configuration
        kin = (t.method, t.weights, t.compute, t.attention) == (c.method, c.weights, c.compute, c.attention)
        return kin and c.offload == "none" and not c.divides_layers


def _divides(training: TrainingConfiguration) -> bool:
    """Whether a bound on tokens can make a step or a micro batch smaller than its number of samples."""
    t = training
    bounds = ((t.max_tokens_per_step, t.effective_batch), (t.max_tokens_per_micro_batch, t.micro_batch))
    return any(bound is not None and bound < samples * t.max_length for bound, samples in bounds)


def _adapters_are(training: TrainingConfiguration, limits: Limits) -> bool:
    targets = training.lora.targets
    ran = targets if isinstance(targets, str) else tuple(sorted(targets))
    asked = limits.targets if isinstance(limits.targets, str) else tuple(sorted(limits.targets))
    return ran == asked and training.lora.rank == limits.rank


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


def times_of(buckets: Sequence[Mapping[str, Any]]) -> Times | None:
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
    return Times(
        seconds_per_step=seconds / steps,
        steps=steps,
        padded_tokens_per_step=tokens / steps,
        buckets_without_time=missing,
    )


def peak_of(document: Mapping[str, Any], evidence: str) -> Peak:
    """From `calibration.json`, whose digest is `evidence`. Raises `KeyError` or `ValueError` for what is none."""
    measured = document["measured"]
    return Peak(
        process_bytes=measured["process_bytes"],
        framework_bytes=measured["framework_bytes"],
        predicted_bytes=document["predicted"]["process_bytes"],
        confirmed=bool(document.get("confirmed")),
        calibration=read_calibration(document, evidence),
    )


def with_peak(account: Account, peak: Peak, *, own: bool) -> Account:
    """The account of a candidate beside the measurement; `own`: it is the configuration that was run.

    Residents and phases keep their proportions. One that was not run itself has the measured share of what its account
    predicts beside the framework.
    """
    if own:
        return _holding(account, peak.held_bytes, peak.framework_bytes)
    ratio = peak.calibration.ratio
    return _holding(account, round(ratio * account.peak_reserved_bytes), peak.calibration.framework_bytes)


def _holding(account: Account, held_bytes: int, framework_bytes: int) -> Account:
    times = held_bytes / account.peak_reserved_bytes

    def scaled(parts: Mapping[str, int]) -> dict[str, int]:
        return {name: round(size * times) for name, size in parts.items()}

    return account.model_copy(
        update={
            "peak_reserved_bytes": held_bytes,
            "peak_allocated_bytes": round(account.peak_allocated_bytes * times),
            "phases": scaled(account.phases),
            "residents": scaled(account.residents) | {"framework": framework_bytes},
            "residents_by_phase": {phase: scaled(parts) for phase, parts in account.residents_by_phase.items()},
            "framework_bytes": framework_bytes,
        }
    )


def with_times(seconds: Seconds, times: Times, predicted_per_token: float, *, own: bool) -> Seconds:
    """`seconds` of a candidate beside the measurement; `own`: it is the configuration that was run, with all samples.

    `predicted_per_token`: seconds for a padded token that were predicted for the measured one.
    """
    source: TimeSource = "measured" if own else "scaled"
    if own:
        expected, spread = times.seconds_per_step, SPREAD
    else:
        per_token = times.seconds_per_step / times.padded_tokens_per_step
        expected = seconds.expected * per_token / predicted_per_token
        spread = SCALED_SPREAD
    slower = expected / seconds.expected
    return Seconds(
        expected=expected,
        low=expected * (1 - spread),
        high=expected * (1 + spread),
        parts={name: part * slower for name, part in seconds.parts.items()},
        bound=seconds.bound,
        source=source,
    )
