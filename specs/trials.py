"""Small trials of the dry run: what is tried, and the document in which their outcomes stand (`trials.json`).

A trial is a short training that differs from the dry run's configuration in one setting. Every setting is tried with
the same seeds, so that each seed gives a pair; how much the pairs differ among seeds is the noise.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from specs.base import Strict

TrialDimension = Literal["rank", "lr", "length"]

CERTAINTY = 0.95
"""That none of the trends of one dry run is noise. Each is told apart at 1 - (1 - 0.95) / number of trends."""

MATERIAL = 0.02
"""A trend changes a proposal only from this share of what the training itself brings: less is not worth a change."""

BASE = "base"
"""The trial that the others are compared with: the configuration of the dry run as it is."""

CHANGED = "changed"
"""The trial of a confirmation that has every change that would be proposed."""


class TrialSettings(Strict):
    """Small trials in the dry run: which settings are tried, how long, with how many seeds."""

    vary: list[TrialDimension] = Field(
        [], description="settings to try, each lower and higher (length: shorter); none: no trials"
    )
    steps: int = Field(10, ge=4, le=1000, description="optimizer steps of a trial")
    repeats: int = Field(4, ge=2, le=16, description="seeds that each setting is tried with; they give the noise")
    confirm_steps: int = Field(
        6, ge=0, le=1000, description="steps of the paired run that confirms trends on the base model; 0: unconfirmed"
    )

    @field_validator("vary")
    @classmethod
    def _once_each(cls, value: list[TrialDimension]) -> list[TrialDimension]:
        if len(set(value)) != len(value):
            raise ValueError("names a setting twice; name each once")
        return value


class TrialParameters(TrialSettings):
    """The trials of one dry run, and what their trends would be applied to."""

    target_lr: float | None = Field(
        None, gt=0, lt=1, description="learning rate proposed for the base model; null: that of the dry run"
    )


Trend = Literal["lower", "higher", "within noise", "diverged", "died", "not tried"]

TrialEnd = Literal["ended", "diverged", "died", "left_out"]
"""How one training ended: as it should, at a number that is not finite, with its worker, or not begun because one died
that it was to be compared with."""

MeasuredOn = Literal["held-out", "training"]
"""The samples that losses are measured on: training samples where no held-out one fits the length."""


class Cause(Strict):
    """Why a trial did not come to a number: a key and its values, worded where it is shown."""

    key: str
    values: dict[str, float | int | str] = Field(default_factory=dict)


class Outcome(Strict):
    """What one setting did to the measured loss, against the base trial of the same seed.

    `change` is the mean over the seeds in nats per token, negative where the setting learnt more; `half_width` is that
    of its confidence interval; `share` is `change` over what the base trials themselves took off that loss.
    """

    name: str = Field(description="rank-down, rank-up, lr-down, lr-up, length-down; changed in a confirmation")
    dimension: TrialDimension | None = None
    before: float = Field(description="value of the setting in the base trial")
    tried: float = Field(description="value in this trial")
    trend: Trend
    change: float | None = None
    half_width: float | None = None
    share: float | None = None
    cause: Cause | None = Field(None, description="of a trial that did not come to a number")
    reason: str = Field("", description="the same as a sentence, in records made before there were causes")

    @property
    def factor(self) -> float:
        """What the setting was multiplied with."""
        return self.tried / self.before

    @property
    def worth_proposing(self) -> bool:
        """Learnt more than the base, beyond the noise and by an amount that matters. A shorter length never is: no
        sample is left out because of a trial."""
        return (
            self.trend == "lower" and self.share is not None and self.share <= -MATERIAL and self.dimension != "length"
        )


class Confirmation(Strict):
    """Whether the base model shows what a smaller model showed; every proposed change together, against none."""

    status: Literal["confirmed", "contradicted", "within noise", "not run", "same model"]
    changes: list[str] = Field(description="names of the trials whose settings were changed together")
    change: float | None = None
    half_width: float | None = None
    share: float | None = None
    measured_on: MeasuredOn = "held-out"
    cause: Cause | None = Field(None, description="why there is no number")
    reason: str = Field("", description="the same as a sentence, in records made before there were causes")


class TrialRecord(Strict):
    """One training of the trials: a line of `trials.jsonl`, and an event of the ledger."""

    number: int = Field(ge=1, description="in the order in which they were to run, the confirmation last")
    purpose: Literal["trial", "confirmation"] = Field(description="confirmation: the changes on the base model")
    name: str = Field(description="base, rank-up, lr-down, ..., changed; base is what the others are compared with")
    seed: int
    model: str
    changes: dict[str, Any] = Field(description="settings that differ from the base trial, by dotted path")
    steps: int = Field(ge=0, description="optimizer steps taken")
    planned: int = Field(ge=1, description="optimizer steps that it was to take")
    outcome: TrialEnd = Field(description="ended, diverged, died (with its worker), or left_out (another one died)")
    why: str = ""
    loss_before: float | None = Field(None, description="on the measured samples, in nats per token")
    loss_after: float | None = None
    started_at: str = Field("", description="UTC; empty for one that was left out")
    seconds: float | None = Field(None, description="from its start to its end; null where that is not known")


class TrialsReport(Strict):
    """`trials.json`."""

    schema_version: int = 1
    model: str
    steps: int
    seeds: list[int]
    samples: int = Field(description="samples on which the loss is measured")
    measured_on: MeasuredOn = Field("held-out", description="training where no held-out sample fits the length")
    together: float = Field(CERTAINTY, description="certainty with which all intervals hold")
    level: float = Field(description="certainty of each interval that this takes")
    base_fall: float | None = Field(description="mean fall of that loss over the base trials, in nats/token")
    outcomes: list[Outcome]
    confirmation: Confirmation | None = Field(None, description="null where no trend would change a proposal")

    @property
    def proposed(self) -> list[Outcome]:
        """The outcome of each setting that would change a proposal: of two of one setting the one that learnt more."""
        worth = [o for o in self.outcomes if o.worth_proposing]
        best: dict[TrialDimension | None, Outcome] = {}
        for outcome in sorted(worth, key=lambda o: o.change or 0.0, reverse=True):
            best[outcome.dimension] = outcome
        return [o for o in worth if best[o.dimension] is o]
