"""The drawing of small trials: how the measured loss of each setting moved away from that of the base trial."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specs.base import Language
from specs.files import read_lines
from specs.trials import BASE, Outcome, TrialsReport
from tasks.plot_drawings import NotShown
from tasks.plot_style import BLUE, GREEN, GREY, ORANGE, new_figure, whole
from tasks.plot_text import words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {"rank-down": BLUE, "rank-up": BLUE, "lr-down": ORANGE, "lr-up": ORANGE, "length-down": GREEN}
_DASHED = (0, (4, 2))
"""The lower value of a setting; the higher one is drawn through."""

Point = tuple[int, float, float]
"""Step, mean difference over the seeds, and their standard deviation."""


def trials(artifacts: Path, language: Language) -> Figure:
    """One curve with a band for each setting that was tried, over the steps; below zero it learnt more."""
    path = artifacts / "trials.json"
    if not path.is_file():
        raise NotShown(path.name)
    report = TrialsReport.model_validate_json(path.read_bytes())
    shown = [(o, curve) for o in report.outcomes if (curve := difference_curve(artifacts, o.name, report.seeds))]
    if not shown:
        raise NotShown("trials/*/probes.jsonl")
    figure, axes = new_figure(3.4)
    axes.axhline(0, color=GREY, linewidth=1)
    for outcome, curve in shown:
        steps, means = [s for s, _, _ in curve], [m for _, m, _ in curve]
        colour, down = _COLOURS[outcome.name], outcome.name.endswith("-down")
        axes.plot(steps, means, color=colour, linestyle=_DASHED if down else "-", label=_label(outcome, language))
        low, high = [m - d for _, m, d in curve], [m + d for _, m, d in curve]
        axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_title(words(language, "trials" if report.measured_on == "held-out" else "trials_training"))
    axes.set_xlabel(f"{words(language, 'step')}  ·  {words(language, 'trials_band')}")
    axes.set_ylabel(words(language, "trials_axis"))
    axes.margins(x=0.02)
    whole(axes.xaxis)
    axes.legend(loc="best", ncols=2)  # up to five entries: more than the line of the title holds
    return figure


def _label(outcome: Outcome, language: Language) -> str:
    return words(language, outcome.name, value=f"{outcome.tried:g}")


def difference_curve(artifacts: Path, name: str, seeds: Sequence[int]) -> list[Point]:
    """Measured loss of a setting less that of the base trial, at every step at which all seeds of both have one."""
    pairs = [(_points(artifacts, name, seed), _points(artifacts, BASE, seed)) for seed in seeds]
    common = set.intersection(*(tried.keys() & base.keys() for tried, base in pairs)) if pairs else set()
    found = []
    for step in sorted(common):
        differences = [tried[step] - base[step] for tried, base in pairs]
        found.append((step, statistics.fmean(differences), statistics.stdev(differences)))
    return found


def _points(artifacts: Path, name: str, seed: int) -> dict[int, float]:
    path = artifacts / "trials" / f"{name}-{seed}" / "probes.jsonl"
    points = read_lines(path) if path.is_file() else []
    return {int(p["step"]): float(p["loss"]) for p in points if p["loss"] is not None}
