"""Drawings of the data stage that count rows: where the rows of each source went, and which machines they are about."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from specs.base import Language
from tasks.plot_drawings import NotShown, categories, legend
from tasks.plot_style import BLUE, GREEN, GREY, ORANGE, new_figure, whole
from tasks.plot_text import words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_BARS = 15
_FATES = (("kept", BLUE), ("merged", GREEN), ("quarantined", ORANGE), ("out_of_scope", GREY))


def fates(artifacts: Path, language: Language) -> Figure:
    """Rows of each source by fate, the largest source first."""
    counts = _counted(artifacts / "row_ledger.parquet", "source", "fate")
    bars = _bars(counts, language, "other_sources")
    figure, axes = new_figure(0.9 + 0.28 * len(bars))
    left = [0.0] * len(bars)
    for fate, colour in _FATES:
        values = [of_name[fate] for _, of_name in bars]
        if any(values):
            axes.barh(range(len(bars)), values, left=left, color=colour, height=0.7, label=words(language, fate))
        left = [a + b for a, b in zip(left, values, strict=True)]
    categories(axes, [name for name, _ in bars])
    axes.set_title(words(language, "fates"))
    axes.set_xlabel(words(language, "rows"))
    whole(axes.xaxis)
    legend(axes)
    return figure


def device_models(artifacts: Path, language: Language) -> Figure:
    """Training and held-out samples of the commonest device models."""
    counts = _counted(artifacts / "samples.parquet", "device_model", "split")
    counts.pop("", None)
    if not counts:
        raise NotShown("samples.parquet: device_model")
    bars = _bars(counts, language, "other_devices")
    figure, axes = new_figure(0.9 + 0.24 * len(bars))
    train = [of_name["train"] for _, of_name in bars]
    held_out = [of_name["eval"] for _, of_name in bars]
    axes.barh(range(len(bars)), train, color=BLUE, height=0.7, label=words(language, "train"))
    axes.barh(range(len(bars)), held_out, left=train, color=ORANGE, height=0.7, label=words(language, "eval"))
    categories(axes, [name for name, _ in bars])
    axes.set_title(words(language, "device_models"))
    axes.set_xlabel(words(language, "samples"))
    whole(axes.xaxis)
    legend(axes)
    return figure


def _bars(counts: dict[str, Counter[str]], language: Language, others: str) -> list[tuple[str, Counter[str]]]:
    """The largest groups, and one bar for all the rest."""
    order = sorted(counts, key=lambda name: (-counts[name].total(), name))
    bars = [(name, counts[name]) for name in order[:_MOST_BARS]]
    if rest := order[_MOST_BARS:]:
        together: Counter[str] = Counter()
        for name in rest:
            together.update(counts[name])
        bars.append((words(language, others, count=len(rest)), together))
    return bars


def _counted(path: Path, name: str, by: str) -> dict[str, Counter[str]]:
    """How often each value of `by` stands with each value of `name`, counted by columns."""
    import pyarrow.parquet as pq

    if not path.is_file():
        raise NotShown(path.name)
    lacking = [column for column in (name, by) if column not in pq.read_schema(path).names]
    if lacking:
        raise NotShown(f"{path.name}: {', '.join(lacking)}")
    rows = pq.read_table(path, columns=[name, by]).group_by([name, by]).aggregate([([], "count_all")]).to_pylist()
    if not rows:
        raise NotShown(path.name)
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        counts.setdefault(row[name] or "", Counter())[row[by]] += row["count_all"]
    return counts
