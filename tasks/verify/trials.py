"""Whether the small trials of a dry run are what was asked for, and say what `trials.json` claims, counted again.

Shares with the stage the formats, the settings that may be tried, and Student's t.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.criteria import Metric
from specs.parameters import leaves
from specs.students_t import central_probability
from tasks.verify import training_logs as logs

ROUNDING = 1e-9

SIDES = {"rank": ("rank-down", "rank-up"), "lr": ("lr-down", "lr-up"), "length": ("length-down",)}
"""What is tried of each setting."""

MAY_DIFFER = {
    "rank": {"lora.rank", "lora.alpha"},
    "lr": {"lr"},
    "length": {"max_length", "epochs", "plain_text_share"},
}
"""Settings in which a trial may differ from the base trial of its seed; a shorter length needs more passes."""

Lines = Sequence[Mapping[str, Any]]


def trial_metrics(planned: Lines, artifacts: Path, parameters: Mapping[str, Any]) -> dict[str, Metric]:
    """The metrics of the trials. Where none were asked for there are none to be wrong, and nothing to be told."""
    asked = parameters.get("trials") or {}
    if planned and not asked.get("vary"):
        none = "no trials were asked for"
        return {
            "trials_faulty": Metric(value=int((artifacts / "trials.json").exists()), unit="trials"),
            "trials_told_apart": Metric(value=0, unit="trials"),
            "trial_noise": Metric(value=None, unit="nats/token", reason=none),
        }
    claimed = logs.document(artifacts / "trials.json")
    if not claimed:
        missing = {"trials_faulty": "trials", "trials_told_apart": "trials", "trial_noise": "nats/token"}
        return {name: logs.missing(unit, "trials.json") for name, unit in missing.items()}
    faults = [*_asked_and_there(claimed, asked), *_faults(artifacts, claimed, parameters)]
    noise = _noise(artifacts, claimed)
    return {
        "trials_faulty": Metric(value=len(faults), unit="trials", reason="; ".join(faults[:5])),
        "trials_told_apart": Metric(
            value=sum(o["trend"] in ("lower", "higher", "diverged") for o in claimed["outcomes"]), unit="trials"
        ),
        "trial_noise": noise,
    }


def _asked_and_there(claimed: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Settings that were to be tried and do not stand in the document, and the other way round."""
    wanted = [name for dimension in asked["vary"] for name in SIDES[dimension]]
    named = [o["name"] for o in claimed["outcomes"]]
    found = [f"{name} is not what was asked for" for name in sorted(set(wanted) ^ set(named))]
    if len(claimed["seeds"]) != asked["repeats"] or len(set(claimed["seeds"])) != len(claimed["seeds"]):
        found.append(f"{len(claimed['seeds'])} seeds instead of {asked['repeats']}")
    if claimed["steps"] != asked["steps"]:
        found.append(f"{claimed['steps']} steps instead of {asked['steps']}")
    return found


def _faults(artifacts: Path, claimed: Mapping[str, Any], parameters: Mapping[str, Any]) -> list[str]:
    """Trials that are incomplete or not paired, and outcomes that their logs do not show."""
    folder, seeds, steps = artifacts / "trials", claimed["seeds"], int(claimed["steps"])
    found = []
    for seed in seeds:
        base = folder / f"base-{seed}"
        if fault := _incomplete(base, steps) or _other_base(base, parameters["training"], seed):
            found.append(f"{base.name}: {fault}")
    made = [o for o in claimed["outcomes"] if o["trend"] != "not tried"]
    for outcome in made:
        for seed in seeds:
            trial, base = folder / f"{outcome['name']}-{seed}", folder / f"base-{seed}"
            fault = _incomplete(trial, steps) or _unpaired(trial, base, outcome["dimension"])
            if fault:
                found.append(f"{trial.name}: {fault}")
        if fault := _claim(outcome, folder, seeds, len(made)):
            found.append(f"{outcome['name']}: {fault}")
    confirmation = claimed.get("confirmation") or {}
    if confirmation.get("change") is not None:
        place = artifacts / "confirm" / "trials"
        paired = [s for s in seeds if _unpaired(place / f"changed-{s}", place / f"base-{s}", "confirm")]
        found += [f"confirmation with seed {s}: not the same batches" for s in paired]
        trend = {"confirmed": "lower", "contradicted": "higher"}.get(confirmation["status"], "within noise")
        if fault := _claim({**confirmation, "name": "changed", "trend": trend}, place, seeds, 1):
            found.append(f"confirmation: {fault}")
    return found


def _incomplete(trial: Path, steps: int) -> str:
    lines = logs.lines(trial / "metrics.jsonl")
    if (trial / "diverged.json").is_file():
        return "" if len(lines) < steps else "said to have diverged, and took every step"
    if [line["step"] for line in lines] != list(range(1, steps + 1)):
        return f"{len(lines)} of {steps} steps"
    return "" if _change(trial) is not None else "its held-out loss is missing before or after"


def _requested(trial: Path) -> dict[str, Any]:
    found: dict[str, Any] = logs.document(trial / "settings.json").get("requested", {})
    return found


SHORTENED = {
    "max_steps",
    "lr_warmup_steps",
    "save_steps",
    "save_minutes",
    "keep_checkpoints",
    "spikes",
    "early_judgement",
    "epochs",
    "plain_text_share",
    "seed",
}
"""What a base trial has of its own; everything else is the configuration of the dry run."""


def _other_base(trial: Path, training: Mapping[str, Any], seed: int) -> str:
    requested, approved = _requested(trial), leaves(dict(training))
    if not requested:  # it diverged before its settings could be read back, or they are gone
        return "its settings are missing"
    odd = sorted(k for k, v in requested.items() if k not in SHORTENED and approved.get(k) != v)
    if odd:
        return f"{odd[0]} is not as approved"
    return "" if requested["seed"] == seed else f"its seed is {requested['seed']}"


def _unpaired(trial: Path, base: Path, dimension: str) -> str:
    """What makes two trials of one seed no pair: other settings than the tried one, or other batches."""
    one, other = _requested(trial), _requested(base)
    may = set().union(*MAY_DIFFER.values()) if dimension == "confirm" else MAY_DIFFER[dimension]
    odd = sorted(k for k in one.keys() | other.keys() if one.get(k) != other.get(k) and k not in may)
    if odd:
        return f"{odd[0]} differs too"
    if dimension == "length":
        return ""
    mine, theirs = ([line["sample_ids"] for line in logs.lines(t / "micro_batches.jsonl")] for t in (trial, base))
    shared = min(len(mine), len(theirs)) if (trial / "diverged.json").is_file() else max(len(mine), len(theirs))
    return "" if mine[:shared] == theirs[:shared] else "other batches than the base trial of its seed"


def _change(trial: Path) -> tuple[float, float] | None:
    """Held-out loss before and after a trial; null where it was not measured at both ends."""
    points = {int(p["step"]): p["loss"] for p in logs.lines(trial / "probes.jsonl") if p["loss"] is not None}
    steps = [line["step"] for line in logs.lines(trial / "metrics.jsonl")]
    if 0 not in points or not steps or steps[-1] not in points:
        return None
    return float(points[0]), float(points[steps[-1]])


def differences(folder: Path, name: str, seeds: Sequence[int]) -> list[float] | None:
    """Held-out loss after each trial less that of the base trial of its seed; null where one diverged."""
    found = []
    for seed in seeds:
        trial, base = _change(folder / f"{name}-{seed}"), _change(folder / f"base-{seed}")
        if trial is None or base is None:
            return None
        found.append(trial[1] - base[1])
    return found


def _claim(outcome: Mapping[str, Any], folder: Path, seeds: Sequence[int], trends: int) -> str:
    """What of an outcome its logs do not bear out."""
    pairs = differences(folder, outcome["name"], seeds)
    if pairs is None:
        return "" if outcome["trend"] == "diverged" else "its logs do not show a change"
    if outcome["trend"] == "diverged":
        return "said to have diverged, and its logs show a change"
    change = statistics.fmean(pairs)
    if outcome["change"] is None or abs(outcome["change"] - change) > ROUNDING:
        return f"its change is {change:.6g}, not {outcome['change']}"
    error = statistics.stdev(pairs) / math.sqrt(len(pairs))
    chance = 1 - central_probability(abs(change) / error, len(pairs) - 1) if error else 0.0 if change else 1.0
    beyond = chance < 0.05 / max(1, trends)
    trend = "within noise" if not beyond else "lower" if change < 0 else "higher"
    return "" if trend == outcome["trend"] else f"its trend is {trend}, not {outcome['trend']}"


def _noise(artifacts: Path, claimed: Mapping[str, Any]) -> Metric:
    """Standard deviation of paired differences among seeds, pooled over the settings."""
    found = [differences(artifacts / "trials", o["name"], claimed["seeds"]) for o in claimed["outcomes"]]
    spread = [statistics.variance(pairs) for pairs in found if pairs and len(pairs) > 1]
    if not spread:
        return logs.missing("nats/token", "a pair of trials")
    return Metric(value=math.sqrt(statistics.fmean(spread)), unit="nats/token")
