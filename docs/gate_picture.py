"""Draw the open gate of a project as the terminal shows it: python docs/gate_picture.py PROJECT TARGET.svg"""

from __future__ import annotations

import html
import io
import re
import sys
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console

from flows.cli.find import find_run
from flows.cli.pages import Page
from flows.cli.running import decision_lines
from flows.reviewing import gate_facts, page


def draw(project: Path, target: Path) -> None:
    """Write the gate of the project's open run as an SVG picture of a terminal."""
    found = find_run(None, project)
    facts = gate_facts(found.workspace, found.ledger)
    console = Console(record=True, width=140, file=io.StringIO(), emoji=False)
    console.print(Page(page(facts)))
    for line in decision_lines(facts.state, found.workspace, where=""):
        console.print(line, markup=False, highlight=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    picture = console.export_svg(title=f"gatewright review · {facts.spec.project}")
    target.write_text(_as_wide_as_cells(picture), encoding="utf-8")


def _as_wide_as_cells(picture: str) -> str:
    """Rich squeezes each text to as many cells as it has characters; a Chinese one takes two."""

    def widened(found: re.Match[str]) -> str:
        text = html.unescape(found[3])
        return f'textLength="{float(found[1]) * cell_len(text) / len(text):g}"{found[2]}>{found[3]}</text>'

    return re.sub(r'textLength="([\d.]+)"([^>]*)>([^<]+)</text>', widened, picture)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
