"""The drawings: each a function from the artifacts of an attempt to a figure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specs.base import Language
from specs.files import read_lines
from tasks.phases import phase_bytes, phase_order
from tasks.plot_style import BLUE, GREEN, GREY, ORANGE, bytes_unit, new_figure, thousands, whole
from tasks.plot_text import phase, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_TYPES = 15


class NotShown(Exception):
    """An artifact that a plot needs is missing or empty; the text names it."""


# -- reading


def _table(path: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    import pyarrow.parquet as pq

    if not path.is_file():
        raise NotShown(path.name)
    have = pq.read_schema(path).names
    lacking = [name for name in columns if name not in have]
    if lacking:
        raise NotShown(f"{path.name}: {', '.join(lacking)}")
    table: dict[str, list[Any]] = pq.read_table(path, columns=list(columns)).to_pydict()
    if not table[columns[0]]:
        raise NotShown(path.name)
    return table


def _lines(path: Path, keys: Sequence[str]) -> list[dict[str, Any]]:
    if not path.is_file():
        raise NotShown(path.name)
    rows = [row for row in read_lines(path) if all(row.get(key) is not None for key in keys)]
    if not rows:
        raise NotShown(path.name)
    return rows


def _document(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise NotShown(path.name)
    found: Mapping[str, Any] = json.loads(path.read_bytes())
    return found


# -- data


def lengths(artifacts: Path, language: Language) -> Figure:
    """Histogram of tokens per sample by split, with the upper edges of the length buckets."""
    table = _table(artifacts / "samples.parquet", ["n_tokens", "split", "bucket"])
    by_split = {
        split: [n for n, s in zip(table["n_tokens"], table["split"], strict=True) if s == split]
        for split in ("train", "eval")
    }
    longest = max(table["n_tokens"])
    edges: dict[Any, int] = {}
    for n, bucket in zip(table["n_tokens"], table["bucket"], strict=True):
        edges[bucket] = max(edges.get(bucket, 0), n)
    figure, axes = new_figure(3.0)
    width = max(1, -(-longest // 40))
    axes.hist(
        [by_split["train"], by_split["eval"]],
        bins=list(range(0, longest + width + 1, width)),
        stacked=True,
        color=[BLUE, ORANGE],
        label=[words(language, "train"), words(language, "eval")],
    )
    for index, edge in enumerate(sorted(set(edges.values()))):
        axes.axvline(
            edge,
            color=GREY,
            linewidth=1,
            linestyle=(0, (4, 3)),
            label=words(language, "bucket") if index == 0 else None,
        )
    axes.set_xlim(0, (longest // width + 1) * width)
    axes.set_title(words(language, "lengths"))
    axes.set_xlabel(words(language, "tokens"))
    axes.set_ylabel(words(language, "samples"))
    thousands(axes.xaxis)
    whole(axes.yaxis)
    legend(axes)
    return figure


def fault_types(artifacts: Path, language: Language) -> Figure:
    """Training and held-out samples of the commonest fault types."""
    table = _table(artifacts / "samples.parquet", ["fault_type", "split"])
    counts: dict[str, Counter[str]] = {"train": Counter(), "eval": Counter()}
    for fault_type, split in zip(table["fault_type"], table["split"], strict=True):
        counts.setdefault(split, Counter())[fault_type or ""] += 1
    total = counts["train"] + counts["eval"]
    named = [name for name in total if name]
    if not named:
        raise NotShown("samples.parquet: fault_type")
    order = sorted(named, key=lambda name: (-total[name], name))
    shown = order[:_MOST_TYPES]
    rows = [(name, counts["train"][name], counts["eval"][name]) for name in shown]
    if rest := order[_MOST_TYPES:]:
        label = words(language, "others", count=len(rest))
        rows.append((label, sum(counts["train"][n] for n in rest), sum(counts["eval"][n] for n in rest)))
    figure, axes = new_figure(0.9 + 0.24 * len(rows))
    positions = list(range(len(rows)))
    axes.barh(positions, [r[1] for r in rows], color=BLUE, height=0.7, label=words(language, "train"))
    axes.barh(
        positions,
        [r[2] for r in rows],
        left=[r[1] for r in rows],
        color=ORANGE,
        height=0.7,
        label=words(language, "eval"),
    )
    categories(axes, [r[0] for r in rows])
    axes.set_title(words(language, "fault_types"))
    axes.set_xlabel(words(language, "samples"))
    whole(axes.xaxis)
    legend(axes)
    return figure


# -- training


def loss(artifacts: Path, language: Language) -> Figure:
    """Loss of every optimizer step and its smoothed course."""
    rows = _lines(artifacts / "metrics.jsonl", ["step", "loss"])
    steps, values = [r["step"] for r in rows], [float(r["loss"]) for r in rows]
    figure, axes = new_figure(3.0)
    axes.plot(
        steps,
        values,
        color=BLUE,
        alpha=0.4,
        linewidth=1,
        marker="o",
        markersize=3 if len(steps) <= 200 else 0,
        label=words(language, "each_step"),
    )
    axes.plot(steps, smooth(values), color=BLUE, label=words(language, "smoothed"))
    for index, step in enumerate(_resumed_at(artifacts)):
        label = words(language, "resumed") if index == 0 else None
        axes.axvline(step + 0.5, color=ORANGE, linewidth=1.2, linestyle=(0, (4, 3)), label=label)
    axes.set_title(words(language, "loss"))
    axes.set_xlabel(words(language, "step"))
    axes.set_ylabel(words(language, "nats"))
    axes.set_ylim(bottom=0)
    axes.margins(x=0.02)
    whole(axes.xaxis)
    legend(axes)
    return figure


def smooth(values: Sequence[float]) -> list[float]:
    """Centred moving mean over a tenth of the values (at least 5); shorter towards both ends, so that it never lags."""
    reach = max(2, len(values) // 20)
    smoothed = []
    for index in range(len(values)):
        near = min(reach, index, len(values) - 1 - index)
        window = values[index - near : index + near + 1]
        smoothed.append(sum(window) / len(window))
    return smoothed


def _resumed_at(artifacts: Path) -> list[int]:
    """Steps after which a later session went on."""
    try:
        sessions = _lines(artifacts / "sessions.jsonl", [])
    except NotShown:
        return []
    return sorted({int(s["from_step"]) for s in sessions[1:] if s.get("from_step")})


def memory(artifacts: Path, language: Language) -> Figure:
    """Memory after each optimizer step."""
    rows = _lines(artifacts / "metrics.jsonl", ["step", "memory_bytes"])
    unit, scale = bytes_unit(max(r["memory_bytes"] for r in rows))
    values = [r["memory_bytes"] / scale for r in rows]
    figure, axes = new_figure(2.4)
    axes.plot([r["step"] for r in rows], values, color=GREEN)
    axes.annotate(
        f"{values[-1]:,.2f} {unit}",
        (rows[-1]["step"], values[-1]),
        xytext=(0, 5),
        textcoords="offset points",
        ha="right",
    )
    axes.set_ylim(0, max(values) * 1.15)
    axes.margins(x=0.02)
    axes.set_title(words(language, "memory"))
    axes.set_xlabel(words(language, "step"))
    axes.set_ylabel(words(language, "memory_axis", unit=unit))
    whole(axes.xaxis)
    thousands(axes.yaxis)
    return figure


def phases(artifacts: Path, language: Language) -> Figure:
    """Predicted and measured peak memory of each phase of the stress test."""
    predicted, measured = phase_bytes(_document(artifacts / "account.json"), _document(artifacts / "measurement.json"))
    names = phase_order(predicted, measured)
    if not names:
        raise NotShown("account.json, measurement.json: phases")
    unit, scale = bytes_unit(max([*predicted.values(), *measured.values()]))
    figure, axes = new_figure(1.0 + 0.46 * len(names))
    positions = list(range(len(names)))
    for side, values, others, colour, key in (
        (-0.2, predicted, measured, GREY, "predicted"),
        (0.2, measured, predicted, BLUE, "measured"),
    ):
        at = [position + (side if name in others else 0.0) for position, name in zip(positions, names, strict=True)]
        shown = [(y, values[name] / scale) for y, name in zip(at, names, strict=True) if name in values]
        axes.barh([y for y, _ in shown], [v for _, v in shown], height=0.36, color=colour, label=words(language, key))
        for y, value in shown:
            axes.annotate(
                f"{value:,.2f}", (value, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5
            )
    categories(axes, [phase(language, name) for name in names])
    axes.margins(x=0.12)
    axes.set_title(words(language, "phases"))
    axes.set_xlabel(words(language, "memory_axis", unit=unit))
    thousands(axes.xaxis)
    legend(axes)
    return figure


# -- evaluation


def evaluation(artifacts: Path, language: Language) -> Figure:
    """Held-out loss of each sample: base model across, adapter up; below the diagonal the adapter is better."""
    pairs = [(base, adapter) for base, adapter, _ in _losses(artifacts)]
    figure, axes = new_figure(4.4)
    top = max(max(pair) for pair in pairs) * 1.05
    axes.plot([0, top], [0, top], color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    axes.scatter([p[0] for p in pairs], [p[1] for p in pairs], s=22, color=BLUE, alpha=0.65, linewidths=0)
    axes.set_xlim(0, top)
    axes.set_ylim(0, top)
    axes.set_aspect("equal", adjustable="box", anchor="W")
    axes.grid(True, axis="both")
    axes.set_title(words(language, "evaluation"))
    axes.set_xlabel(words(language, "base_loss"))
    axes.set_ylabel(words(language, "adapter_loss"))
    axes.text(0.97, 0.04, words(language, "better"), transform=axes.transAxes, ha="right", fontsize=9)
    return figure


def by_type(artifacts: Path, language: Language) -> Figure:
    """Mean held-out loss of each fault type, base model and adapter joined by a line."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for base, adapter, fault_type in _losses(artifacts):
        groups.setdefault(fault_type, []).append((base, adapter))
    order = sorted(groups, key=lambda name: (-len(groups[name]), name))[:_MOST_TYPES]
    if not any(groups) or not order:
        raise NotShown("eval_losses.parquet: fault_type")
    means = [
        (sum(p[0] for p in groups[n]) / len(groups[n]), sum(p[1] for p in groups[n]) / len(groups[n])) for n in order
    ]
    figure, axes = new_figure(1.0 + 0.26 * len(order))
    positions = list(range(len(order)))
    for position, (base, adapter) in zip(positions, means, strict=True):
        axes.plot([base, adapter], [position, position], color=GREY, linewidth=1.5, alpha=0.6, zorder=1)
    axes.scatter([m[0] for m in means], positions, s=34, color=ORANGE, label=words(language, "base"), zorder=2)
    axes.scatter([m[1] for m in means], positions, s=34, color=BLUE, label=words(language, "adapter"), zorder=2)
    categories(axes, [f"{name or words(language, 'no_type')}  ({len(groups[name])})" for name in order])
    axes.set_xlim(left=0)
    axes.grid(True, axis="x")
    axes.set_title(words(language, "by_type"))
    axes.set_xlabel(words(language, "nats"))
    legend(axes)
    return figure


def _losses(artifacts: Path) -> list[tuple[float, float, str]]:
    """(base loss, adapter loss, fault type) of each held-out sample, nats per token."""
    path = artifacts / "eval_losses.parquet"
    table = _table(path, ["loss_base", "loss_adapter", "fault_type"])
    rows = zip(table["loss_base"], table["loss_adapter"], table["fault_type"], strict=True)
    found = [(float(b), float(a), str(t or "")) for b, a, t in rows if b is not None and a is not None]
    if not found:
        raise NotShown(path.name)
    return found


# -- shared


def categories(axes: Axes, labels: Sequence[str]) -> None:
    """Names down the left side, the first on top."""
    axes.set_yticks(range(len(labels)), labels=list(labels))
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(False, axis="y")
    axes.grid(True, axis="x")
    axes.spines["left"].set_visible(False)


def legend(axes: Axes) -> None:
    """On the line of the title, at its right."""
    axes.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, borderaxespad=0.4, handlelength=1.4, columnspacing=1.2
    )
