"""Which small trials are made of a configuration, and what their losses say: trends against their noise. Pure.

Trends are relative: how much more or less of the held-out loss a setting takes off than the base trial of the same
seed. They say which way is better, not where a whole training would end.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specs.parameters import LoraParameters, TrainingConfiguration
from specs.students_t import quantile
from specs.trials import BASE, CERTAINTY, Cause, Confirmation, Outcome, Trend, TrialDimension, TrialSettings

RANK_FACTOR, LR_FACTOR = 2, 3
"""How far rank and learning rate are moved, down and up: far enough that few steps show it."""

MOST_RANK = 1024
"""The rank that a configuration may have at most."""

SHORTER = 0.75
"""The shorter length keeps this share of the training samples."""


@dataclass(frozen=True)
class Died:
    """A trial whose worker died: killed, or out of memory. `message` says how."""

    message: str


Measured = tuple[float, float] | Died | None
"""Measured loss before and after a trial; null for one that diverged."""

Losses = Mapping[int, Measured]
"""Seed to what came of one setting. One that was left out, because another of its setting died, is not there."""


@dataclass(frozen=True)
class Variant:
    """One setting that is tried. `cannot` says why it is not."""

    name: str
    dimension: TrialDimension | None
    before: float
    tried: float
    training: TrainingConfiguration
    cannot: Cause | None = None


def short(training: TrainingConfiguration, steps: int) -> TrainingConfiguration:
    """The base trial: the configuration over so many steps, its warm-up shortened with it, saved once at the end."""
    whole = training.max_steps or steps
    return training.model_copy(
        update={
            "max_steps": steps,
            "lr_warmup_steps": min(steps - 1, round(training.lr_warmup_steps * steps / whole)),
            "save_steps": steps,
            "save_minutes": None,
            "keep_checkpoints": 1,
            "spikes": "note",
            "early_judgement": "off",
        }
    )


def variants(base: TrainingConfiguration, settings: TrialSettings, lengths: Sequence[int]) -> list[Variant]:
    """The base trial and every setting beside it; `lengths` are the tokens of the training samples."""
    found = [Variant(BASE, None, 1.0, 1.0, base)]
    if "rank" in settings.vary:
        rank = base.lora.rank
        found += [_with_rank(base, "rank-down", max(1, rank // RANK_FACTOR))]
        found += [_with_rank(base, "rank-up", rank * RANK_FACTOR)]
    if "lr" in settings.vary:
        found += [_with_lr(base, "lr-down", base.lr / LR_FACTOR), _with_lr(base, "lr-up", base.lr * LR_FACTOR)]
    if "length" in settings.vary:
        found.append(_with_length(base, lengths))
    return found


def _with_rank(base: TrainingConfiguration, name: str, rank: int) -> Variant:
    """Scale (alpha / rank) as before: what is tried is the room of the adapter, not its learning rate."""
    cannot = None
    if rank == base.lora.rank:
        cannot = Cause(key="no_lower_rank")
    elif rank > MOST_RANK:
        cannot = Cause(key="rank_limit", values={"rank": rank, "limit": MOST_RANK})
    lora = base.lora if cannot else changed_rank(base, rank)
    return Variant(name, "rank", base.lora.rank, rank, base.model_copy(update={"lora": lora}), cannot)


def changed_rank(training: TrainingConfiguration, rank: int) -> LoraParameters:
    """The adapter of another rank and the same scale."""
    return training.lora.model_copy(update={"rank": rank, "alpha": training.lora.alpha * rank / training.lora.rank})


def _with_lr(base: TrainingConfiguration, name: str, lr: float) -> Variant:
    lr = float(f"{lr:.3g}")
    cannot = None if lr < 1 else Cause(key="lr_limit", values={"lr": lr})
    return Variant(name, "lr", base.lr, lr, base.model_copy(update={"lr": lr}), cannot)


def _with_length(base: TrainingConfiguration, lengths: Sequence[int]) -> Variant:
    ordered = sorted(lengths)
    shorter = max(8, -(-ordered[math.ceil(SHORTER * len(ordered)) - 1] // 8) * 8)
    left = sum(1 for n in ordered if n <= shorter)
    cannot = None
    if base.packing:
        cannot = Cause(key="packing")
    elif left == len(ordered):
        cannot = Cause(key="one_length")
    elif left < base.effective_batch:
        cannot = Cause(key="few_left", values={"left": left, "batch": base.effective_batch})
    training = base if cannot else base.model_copy(update={"max_length": shorter})
    return Variant("length-down", "length", base.max_length, shorter, training, cannot)


def seeds_of(training: TrainingConfiguration, repeats: int) -> list[int]:
    """The seeds of the repetitions: they order the samples, start the adapter and draw its dropout."""
    return [(training.seed + k) % 2**31 for k in range(repeats)]


def level_of(trends: int) -> float:
    """Certainty of each of so many intervals, so that all of them hold with `CERTAINTY` (Bonferroni)."""
    return 1 - (1 - CERTAINTY) / max(1, trends)


@dataclass(frozen=True)
class Trended:
    """A paired difference over seeds, and what it says."""

    trend: Trend
    change: float | None = None
    half_width: float | None = None
    share: float | None = None
    cause: Cause | None = None


def trended(base: Losses, tried: Losses, level: float) -> Trended:
    """The mean difference after training, tried less base, with the half width of its t interval over the seeds.

    One trial that diverges, or whose worker dies, is the finding: no mean of the others is made.
    """
    dead = next(((seed, of) for seed, of in base.items() if isinstance(of, Died)), None)
    if dead:
        return Trended("not tried", cause=Cause(key="base_died", values={"seed": dead[0], "message": dead[1].message}))
    lost = [seed for seed, losses in base.items() if losses is None]
    if lost:
        return Trended("not tried", cause=Cause(key="base_diverged", values={"seed": lost[0]}))
    dead = next(((seed, of) for seed, of in tried.items() if isinstance(of, Died)), None)
    if dead:
        return Trended("died", cause=Cause(key="died", values={"seed": dead[0], "message": dead[1].message}))
    lost = [seed for seed, losses in tried.items() if losses is None]
    if lost:
        counts = {"count": len(lost), "trainings": len(tried)}
        return Trended("diverged", cause=Cause(key="diverged", values=counts))
    pairs = _whole(base)
    differences = [losses[1] - pairs[seed][1] for seed, losses in _whole(tried).items()]
    change = statistics.fmean(differences)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    half = quantile(level, len(differences) - 1) * error
    fall = statistics.fmean(before - own for before, own in pairs.values())
    trend: Trend = "lower" if change + half < 0 else "higher" if change - half > 0 else "within noise"
    return Trended(trend, change, half, change / fall if fall > 0 else None)


def _whole(losses: Losses) -> dict[int, tuple[float, float]]:
    """Those that ended as they should."""
    return {seed: of for seed, of in losses.items() if of is not None and not isinstance(of, Died)}


def outcome(variant: Variant, base: Losses, tried: Losses, level: float) -> Outcome:
    """What a setting did; a variant that could not be tried says why."""
    found = Trended("not tried", cause=variant.cannot) if variant.cannot else trended(base, tried, level)
    return Outcome(
        name=variant.name,
        dimension=variant.dimension,
        before=variant.before,
        tried=variant.tried,
        trend=found.trend,
        change=found.change,
        half_width=found.half_width,
        share=found.share,
        cause=found.cause,
    )


def with_changes(
    training: TrainingConfiguration, proposed: Sequence[Outcome], lr: float | None
) -> tuple[TrainingConfiguration, TrainingConfiguration]:
    """(base, changed) for the base model: `lr` is what would be proposed for it; factors are applied to it."""
    base = training if lr is None else training.model_copy(update={"lr": lr})
    changed = base
    for trend in proposed:
        if trend.dimension == "lr":
            changed = changed.model_copy(update={"lr": min(0.999, float(f"{base.lr * trend.factor:.3g}"))})
        elif trend.dimension == "rank":
            rank = max(1, round(base.lora.rank * trend.factor))
            changed = changed.model_copy(update={"lora": changed_rank(base, rank)})
    return base, changed


def confirmed(proposed: Sequence[Outcome], base: Losses, changed: Losses) -> Confirmation:
    """What the paired run on the base model says of the changes together."""
    names = [o.name for o in proposed]
    found = trended(base, changed, CERTAINTY)
    if found.trend in ("not tried", "diverged", "died"):
        status: Any = "contradicted" if found.trend == "diverged" else "not run"
        return Confirmation(status=status, changes=names, cause=found.cause)
    status = {"lower": "confirmed", "higher": "contradicted"}.get(found.trend, "within noise")
    return Confirmation(
        status=status, changes=names, change=found.change, half_width=found.half_width, share=found.share
    )


def base_fall(base: Losses) -> float | None:
    """What the base trials took off the measured loss, in the mean; null where one diverged or died, or none was
    made."""
    falls = [before - after for before, after in _whole(base).values()]
    return statistics.fmean(falls) if falls and len(falls) == len(base) else None


def ends(points: Mapping[int, float | None], last: int) -> tuple[float, float] | None:
    """Loss before the first and after the last step; null where either is missing or no finite number: it diverged."""
    before, after = points.get(0), points.get(last)
    if before is None or after is None or not (math.isfinite(before) and math.isfinite(after)):
        return None
    return before, after


def name_of(setting: str, seed: int) -> str:
    """The folder of one trial."""
    return f"{setting}-{seed}"
