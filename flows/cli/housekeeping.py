"""Commands that keep house: close a run that cannot go on."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.app import app
from flows.cli.options import AsJson, ProjectOption, RunArgument
from flows.cli.output import emit, guarded, say
from specs.errors import EXIT_DONE

Who = Annotated[str, typer.Option("--as", metavar="WHO", help="Who does it; recorded.")]
Why = Annotated[str, typer.Option("-m", "--message", metavar="TEXT", help="Why; recorded.")]


@app.command()
@guarded
def close(
    run: RunArgument = None,
    who: Who = ...,  # type: ignore[assignment]
    why: Why = "",
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """End a run that cannot go on: its folder is lost, or it only fails. A run at a gate is rejected instead."""
    from flows.cli.find import find_run
    from flows.closing import close_run

    found = find_run(run, project)
    event = close_run(found.workspace, found.ledger, who, why)
    if as_json:
        emit({"run": found.run, "sequence": event.sequence, **event.payload})
        return EXIT_DONE
    lost = event.payload["lost"]
    say(f"run {found.run} is closed" + (f"; lost: {', '.join(lost)}" if lost else ""))
    return EXIT_DONE
