"""How far the task sheets of a project's runs were from what came: the error per run, which should fall. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from specs.base import Language
from specs.bilingual import Texts
from specs.costs import STAGE_SECONDS
from specs.metrics import definitions

QUANTITIES = {
    "rows": "rows",
    "samples": "rows",
    "steps": "steps",
    "s": "time",
    "h": "time",
    "bytes": "memory",
}
"""Unit of a metric to what it counts."""

_WORDS: dict[str, tuple[str, str]] = {
    "head": (
        "How far the sheet was from what came (mean of |expected / actual - 1|)",
        "任务单与实际的差距（|预期 / 实际 - 1| 的均值）",
    ),
    "rows": ("rows", "行数"),
    "steps": ("steps", "步数"),
    "time": ("time", "时间"),
    "idle_time": ("time without other programs", "扣除其他程序后的时间"),
    "memory": ("memory", "内存"),
}
_word = Texts(_WORDS)

IDLE = "idle_time"
"""Of times beside `time`: against what they would have been had nothing else run, which is what a sheet expects."""

Curve = list[tuple[str, dict[str, float]]]
"""Per run, oldest first, the mean error of each quantity that its sheet expected and that was measured."""


def curve(entries: Iterable[Mapping[str, Any]]) -> Curve:
    """The errors of the sheets that first gates signed; what was expected later, with more known, is left out."""
    errors: dict[str, dict[str, list[float]]] = {}
    for entry in entries:
        quantity = QUANTITIES.get(_unit(entry["stage"], entry["metric"]))
        if entry["known"] or quantity is None or not entry["actual"]:
            continue
        of_run = errors.setdefault(entry["run"], {})
        of_run.setdefault(quantity, []).append(abs(entry["expected"] / entry["actual"] - 1))
        if entry.get("idle"):
            of_run.setdefault(IDLE, []).append(abs(entry["expected"] / entry["idle"] - 1))
    order = (*dict.fromkeys(QUANTITIES.values()), IDLE)
    return [(run, {q: sum(found[q]) / len(found[q]) for q in order if q in found}) for run, found in errors.items()]


def _unit(stage: str, metric: str) -> str:
    if metric == STAGE_SECONDS:
        return "s"
    return next((d.unit for d in definitions(stage) if d.name == metric), "")


def lines(found: Curve, language: Language) -> list[str]:
    """The curve as text; empty for fewer than two runs, which are no curve."""
    if len(found) < 2:
        return []
    word = partial(_word, language)
    width = max(len(run) for run, _ in found)
    comma = "，" if language == "zh" else ", "
    body = [
        f"  {run:<{width}}  " + comma.join(f"{word(q)} {error:.1%}" for q, error in errors.items())
        for run, errors in found
    ]
    return [word("head"), *body]
