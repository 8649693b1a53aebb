"""Pictures of a stage, drawn from its artifacts alone. What an artifact does not show is not drawn, and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specs.base import Language
from specs.files import write_bytes
from tasks.plot_data import device_models, fates
from tasks.plot_drawings import NotShown, by_type, evaluation, fault_types, lengths, loss, memory, phases
from tasks.plot_style import style, svg
from tasks.plot_text import words
from tasks.plot_trials import trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PlotDefinition:
    """A plot of a stage: the file `plots/<name>.svg`, and how it is drawn from the attempt's artifacts."""

    name: str
    draw: Callable[[Path, Language], Figure]
    needs: str = ""
    """An artifact without which nobody expects this picture."""


def draw(stage: str, attempt_dir: Path, language: Language) -> list[Path]:
    """Draw every plot of a stage whose artifacts are there, into `plots/`; equal artifacts give equal bytes."""
    (attempt_dir / "plots").mkdir(parents=True, exist_ok=True)
    written = []
    for plot in PLOTS.get(stage, ()):
        with style(plot.name):
            try:
                figure = plot.draw(attempt_dir / "artifacts", language)
            except NotShown:
                continue
            path = attempt_dir / "plots" / f"{plot.name}.svg"
            write_bytes(path, svg(figure).encode())
            written.append(path)
    return written


def missing(stage: str, attempt_dir: Path, language: Language) -> list[tuple[str, str]]:
    """(title of a plot that could not be drawn, what is missing for it)."""
    found = []
    for plot in PLOTS.get(stage, ()):
        expected = not plot.needs or (attempt_dir / "artifacts" / plot.needs).is_file()
        if expected and not (attempt_dir / "plots" / f"{plot.name}.svg").is_file():
            with style(plot.name):
                try:
                    plot.draw(attempt_dir / "artifacts", language)
                except NotShown as error:
                    found.append((words(language, plot.name), str(error)))
    return found


def drawn(stage: str, attempt_dir: Path) -> list[Path]:
    """The SVG files of an attempt: ours in their order, then others by name."""
    order = [plot.name for plot in PLOTS.get(stage, ())]
    found = (attempt_dir / "plots").glob("*.svg")
    return sorted(found, key=lambda path: (order.index(path.stem) if path.stem in order else len(order), path.name))


def title_of(name: str, language: Language) -> str:
    """The title of a plot by the name of its file."""
    known = {plot.name for plots in PLOTS.values() for plot in plots}
    return words(language, name) if name in known else name


PLOTS: dict[str, tuple[PlotDefinition, ...]] = {
    "data": (
        PlotDefinition("fates", fates),
        PlotDefinition("lengths", lengths),
        PlotDefinition("fault_types", fault_types),
        PlotDefinition("device_models", device_models),
    ),
    "dry_run": (
        PlotDefinition("loss", loss),
        PlotDefinition("memory", memory),
        PlotDefinition("trials", trials, needs="trials.json"),
    ),
    "stress_test": (PlotDefinition("phases", phases),),
    "train": (PlotDefinition("loss", loss), PlotDefinition("memory", memory)),
    "evaluate": (PlotDefinition("evaluation", evaluation), PlotDefinition("by_type", by_type)),
}
