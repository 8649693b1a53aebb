"""The picture of a search: how the best plans fill the memory of a card, by resident."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from specs.base import Language
from tasks.planning.plans import Plan, PlanSearch
from tasks.planning.texts import placed, short
from tasks.planning.weighing import BAND
from tasks.plot_drawings import categories, legend
from tasks.plot_style import GREEN, GREY, new_figure, style, svg
from tasks.plot_text import resident, words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ORDER = (
    "weights",
    "gathered",
    "gradients",
    "optimizer_states",
    "activations",
    "temporary",
    "communication",
    "kv_cache",
    "framework",
)
COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#cc79a7", "#e69f00", "#f0e442", "#7f3c8d", "#444444", GREY)
"""Okabe and Ito's palette, one colour a resident."""
CHINESE_FONTS = ("Noto Sans CJK SC", "Source Han Sans SC", "Microsoft YaHei", "PingFang SC", "WenQuanYi Micro Hei")


def drawn(found: PlanSearch, plans: Sequence[Plan], language: Language) -> Figure:
    """One bar a plan, the preferred on top; the wanted band and the whole usable memory are marked."""
    figure, axes = new_figure(1.5 + 0.42 * len(plans))
    left = [0.0] * len(plans)
    for name, colour in zip(ORDER, COLOURS, strict=True):
        sizes = [p.account.residents.get(name, 0) if p.account else 0 for p in plans]
        values = [100 * size / found.usable_bytes for size in sizes]
        if any(values):
            axes.barh(range(len(plans)), values, left=left, color=colour, height=0.66, label=resident(language, name))
        left = [a + b for a, b in zip(left, values, strict=True)]
    band = axes.axvspan(100 * BAND[0], 100 * BAND[1], color=GREEN, alpha=0.18, linewidth=0, zorder=0)
    band.set_label(words(language, "wanted_band"))
    axes.axvline(100, color=GREY, linewidth=1.2)
    categories(axes, [f"{short(p, language)}\n{placed(p, language)}" for p in plans])
    axes.set_xlim(0, max(105.0, *(v + 5 for v in left)))
    axes.xaxis.set_major_formatter("{x:.0f} %")
    axes.set_title(f"{words(language, 'plans', device=found.device)}\n{found.model}")
    axes.set_xlabel(words(language, "share_of_usable") + f" ({found.usable_bytes / 2**30:.1f} GiB)")
    legend(axes)
    return figure


def picture(found: PlanSearch, plans: Sequence[Plan], language: Language, kind: str) -> bytes:
    """The picture as `svg` or `png`."""
    with style("plans"):
        import matplotlib

        if kind == "png":  # an SVG takes the reader's fonts, a PNG needs one that is here
            matplotlib.rcParams["font.family"] = [*_installed(CHINESE_FONTS), "DejaVu Sans"]
        figure = drawn(found, plans, language)
        if kind == "svg":
            return svg(figure).encode()
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=144, facecolor="white", metadata={"Software": ""})
        return buffer.getvalue()


def _installed(names: Sequence[str]) -> list[str]:
    from matplotlib import font_manager

    here = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in names if name in here]
