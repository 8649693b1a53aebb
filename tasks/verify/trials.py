"""Whether the small trials of a dry run are what was asked for, and say what `trials.json` claims, counted again.

Shares with the stage the formats, the settings that may be tried, and Student's t.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
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


def trial_metrics(
    planned: Lines, artifacts: Path, samples: Path | None, parameters: Mapping[str, Any]
) -> dict[str, Metric]:
    """The metrics of the trials. Where none were asked for there are none to be wrong, and nothing to be told.

    `samples` is the table of the data stage, which says what was held out.
    """
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
    faults = [
        *_asked_and_there(claimed, asked),
        *_faults(artifacts, claimed, parameters),
        *_measured_elsewhere(artifacts, claimed, samples),
        *_recorded_otherwise(artifacts, claimed),
    ]
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
    made = [o for o in claimed["outcomes"] if o["trend"] != "not tried"]
    found = []
    bases = [folder / f"base-{seed}" for seed in seeds] if made or folder.is_dir() else []
    dead = any(map(_died, bases))
    for seed, base in zip(seeds, bases, strict=False):
        if dead and _end(base) in ("died", "left_out"):
            continue  # nothing is said of what would have been compared with it
        if fault := _incomplete(base, steps) or _other_base(base, parameters["training"], seed):
            found.append(f"{base.name}: {fault}")
    for outcome in claimed["outcomes"]:
        if outcome in made:
            found += _made(outcome, folder, seeds, steps, len(made))
        elif fault := _left_out(outcome["name"], folder, seeds, parameters["training"]):
            found.append(f"{outcome['name']}: {fault}")
    confirmation = claimed.get("confirmation") or {}
    if confirmation.get("change") is not None:
        place = artifacts / "confirm" / "trials"
        paired = [s for s in seeds if _unpaired(place / f"changed-{s}", place / f"base-{s}", "confirm")]
        found += [f"confirmation with seed {s}: not the same batches" for s in paired]
        trend = {"confirmed": "lower", "contradicted": "higher"}.get(confirmation["status"], "within noise")
        if fault := _claim({**confirmation, "name": "changed", "trend": trend}, place, seeds, 1):
            found.append(f"confirmation: {fault}")
    elif (confirmation.get("cause") or {}).get("key") in ("died", "base_died"):
        place = artifacts / "confirm" / "trials"
        lost = [s for s in seeds for name in ("base", "changed") if _died(place / f"{name}-{s}")]
        found += [] if lost else ["confirmation: its worker is said to have died, and its logs do not show it"]
    elif confirmation.get("status") == "contradicted":
        lost = [s for s in seeds if _diverged(artifacts / "confirm" / "trials" / f"changed-{s}")]
        found += [] if lost else ["confirmation: said to have diverged, and its logs do not show it"]
    return found


def _made(outcome: Mapping[str, Any], folder: Path, seeds: Sequence[int], steps: int, trends: int) -> list[str]:
    """What is wrong with the trials of one setting, and with what is said of them."""
    found = []
    dead = any(_died(folder / f"{outcome['name']}-{seed}") for seed in seeds)
    if dead != (outcome["trend"] == "died"):
        found.append(f"{outcome['name']}: its worker {'died' if dead else 'did not die'}, and it is said otherwise")
    for seed in seeds if not dead else []:
        trial, base = folder / f"{outcome['name']}-{seed}", folder / f"base-{seed}"
        if fault := _incomplete(trial, steps) or _unpaired(trial, base, outcome["dimension"]):
            found.append(f"{trial.name}: {fault}")
    if not dead and outcome["trend"] != "died" and (fault := _claim(outcome, folder, seeds, trends)):
        found.append(f"{outcome['name']}: {fault}")
    return found


def _left_out(name: str, folder: Path, seeds: Sequence[int], training: Mapping[str, Any]) -> str:
    """A setting without a result: no such value exists, or no base trial is there to be compared with.

    Whether a shorter length could have been tried is for the samples to say, and is not looked at.
    """
    if any((folder / f"{name}-{seed}").is_dir() for seed in seeds):
        lost = any(_diverged(folder / f"base-{seed}") or _died(folder / f"base-{seed}") for seed in seeds)
        return "" if lost else "said to be without a result, and its logs show one"
    rank, lr = training["lora"]["rank"], training["lr"]
    exists = {"rank-down": rank > 1, "rank-up": 2 * rank <= 1024, "lr-down": True, "lr-up": 3 * lr < 0.999}
    return "said to be impossible, and is not" if exists.get(name, False) else ""


def _measured_elsewhere(artifacts: Path, claimed: Mapping[str, Any], samples: Path | None) -> list[str]:
    """Trials of one model that were not measured on the same samples, or not on the kind that is claimed.

    Trials recorded before they kept `probe.json` show neither.
    """
    import pyarrow.parquet as pq

    found, confirmation = [], claimed.get("confirmation") or {}
    places = {"trials": ("trials", claimed), "confirmation": ("confirm/trials", confirmation)}
    for called, (place, of) in places.items():
        probes = [logs.document(path) for path in sorted((artifacts / place).glob("*/probe.json"))]
        ids = {tuple(probe["sample_ids"]) for probe in probes}
        if len(ids) > 1:
            found.append(f"{called}: measured on {len(ids)} sets of samples")
        if not ids or samples is None or not samples.is_file():
            continue
        table = pq.read_table(samples, columns=["sample_id", "split"]).to_pydict()
        split_of = dict(zip(table["sample_id"], table["split"], strict=True))
        kinds = {split_of.get(i) for one in ids for i in one}
        said = of.get("measured_on", "held-out")
        if kinds != {"train" if said == "training" else "eval"}:
            found.append(f"{called}: not measured on {said} samples")
    return found


def _recorded_otherwise(artifacts: Path, claimed: Mapping[str, Any]) -> list[str]:
    """Lines of `trials.jsonl` that the logs of their trial do not bear out, and trials without a line.

    Trials recorded before there was this file have none.
    """
    path = artifacts / "trials.jsonl"
    if not path.is_file():
        return []
    found, seen = [], Counter[tuple[str, str]]()
    for line in logs.lines(path):
        called, place = f"{line['name']}-{line['seed']}", _PLACES.get(line["purpose"], "")
        seen[place, called] += 1
        trial, losses = artifacts / place / called, _change(artifacts / place / called)
        end = _end(trial)
        shown = losses if end == "ended" and losses else (None, None)
        said = line["outcome"], line["steps"], (line["loss_before"], line["loss_after"])
        if said != (end, len(logs.lines(trial / "metrics.jsonl")), shown):
            found.append(f"trials.jsonl: {called} is said to have {line['outcome']} otherwise than its logs show")
    there = {(place, p.name) for place in _PLACES.values() for p in (artifacts / place).glob("*-*")}
    odd = sorted(there.symmetric_difference(seen)) + [one for one, count in sorted(seen.items()) if count > 1]
    return found + [f"trials.jsonl: {name} stands there {seen[place, name]} times" for place, name in odd]


_PLACES = {"trial": "trials", "confirmation": "confirm/trials"}


def _end(trial: Path) -> str:
    """How the logs of a trial say that it ended."""
    named = {"died.json": "died", "left_out.json": "left_out"}
    marked = next((end for name, end in named.items() if (trial / name).is_file()), None)
    return marked or ("diverged" if _change(trial) is None else "ended")


def _incomplete(trial: Path, steps: int) -> str:
    lines = logs.lines(trial / "metrics.jsonl")
    if (end := _end(trial)) in ("died", "left_out"):
        return f"it {'died' if end == 'died' else 'was left out'}"
    if (trial / "diverged.json").is_file():
        return "" if len(lines) < steps else "said to have diverged, and took every step"
    if [line["step"] for line in lines] != list(range(1, steps + 1)):
        return f"{len(lines)} of {steps} steps"
    return "" if {0, steps} <= _points(trial).keys() else "its measured loss is missing before or after"


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


def _points(trial: Path) -> dict[int, float | None]:
    """Measured loss by step; null where it was no finite number."""
    return {int(p["step"]): p["loss"] for p in logs.lines(trial / "probes.jsonl")}


def _diverged(trial: Path) -> bool:
    """Whether a trial broke off, or its measured loss was no finite number before or after."""
    return trial.is_dir() and _end(trial) == "diverged"


def _died(trial: Path) -> bool:
    """Whether the worker died in a trial."""
    return (trial / "died.json").is_file()


def _change(trial: Path) -> tuple[float, float] | None:
    """Measured loss before and after a trial; null where it broke off, or was not a finite number at both ends."""
    points, steps = _points(trial), [line["step"] for line in logs.lines(trial / "metrics.jsonl")]
    if (trial / "diverged.json").is_file() or not steps:
        return None
    before, after = points.get(0), points.get(steps[-1])
    if before is None or after is None or not (math.isfinite(before) and math.isfinite(after)):
        return None
    return float(before), float(after)


def differences(folder: Path, name: str, seeds: Sequence[int]) -> list[float] | None:
    """Measured loss after each trial less that of the base trial of its seed; null where one diverged."""
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
