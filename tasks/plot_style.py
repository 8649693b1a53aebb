"""How every plot looks: one size, one palette for any eyes, text that stays text, the same bytes for the same data."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#e69f00", "#009e73", "#8a8f98"
"""Okabe and Ito's palette for colour-vision deficiency; grey for what is only context."""

FONTS = (
    "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'Noto Sans CJK SC', 'Microsoft YaHei', 'PingFang SC', "
    "'Source Han Sans SC', sans-serif"
)
WIDTH_INCHES = 7.4

_INK = "#111213"
"""Replaced by the colour of the reader's text, so that a plot is readable on a light and on a dark page."""

_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.labelsize": 10,
    "axes.labelpad": 6,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.7,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 2.0,
    "axes.formatter.useoffset": False,
}


@contextmanager
def style(name: str) -> Iterator[None]:
    """Our settings, nobody else's: a matplotlibrc of the user changes nothing. `name` seeds the ids of the SVG."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        # glyphs that the measuring font lacks are drawn by the reader's browser
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcdefaults()
        settings: Any = {**_SETTINGS, "svg.hashsalt": f"gatewright {name}"}
        matplotlib.rcParams.update(settings)
        yield


def new_figure(height_inches: float) -> tuple[Figure, Axes]:
    """An empty figure with one pair of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")
    return figure, figure.add_subplot()


def svg(figure: Figure) -> str:
    """The figure as SVG without date, fonts, fixed ink or pixel size."""
    buffer = StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = text.replace(_INK, "currentColor")
    text = re.sub(r"'DejaVu Sans'(?:, [^;\"]*)?(?=[;\"])", FONTS, text)
    text = re.sub(r'(<svg[^>]*?) height="[\d.]+pt"', r"\1", text)
    return re.sub(r'(<svg[^>]*?) width="[\d.]+pt"', r"\1", text)


def thousands(axis: Any) -> None:
    """Ticks as 1,200."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value == round(value) else f"{value:g}"))


def whole(axis: Any) -> None:
    """Ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, nbins="auto", min_n_ticks=1))
    thousands(axis)


def bytes_unit(largest: float) -> tuple[str, float]:
    """(unit, bytes per unit) in which the largest value reads well."""
    return ("GiB", 2.0**30) if largest >= 2**30 else ("MiB", 2.0**20)
