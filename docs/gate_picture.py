"""Draw the open gate of a project as the terminal shows it: python docs/gate_picture.py PROJECT TARGET.svg"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console

from flows.cli.find import find_run
from flows.cli.pages import Page
from flows.cli.running import decision_lines
from flows.reviewing import gate_facts, page


def draw(project: Path, target: Path) -> None:
    """Write the gate of the project's open run as an SVG picture of a terminal."""
    found = find_run(None, project)
    facts = gate_facts(found.workspace, found.ledger)
    console = Console(record=True, width=110, file=io.StringIO(), emoji=False)
    console.print(Page(page(facts)))
    for line in decision_lines(facts.state, found.workspace, where=""):
        console.print(line, markup=False, highlight=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    console.save_svg(str(target), title=f"gatewright review · {facts.spec.project}")


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
