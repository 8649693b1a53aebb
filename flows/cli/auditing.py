"""The history for somebody who was not there: audit list, show, verify, export, anchor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from flows.cli.app import audit
from flows.cli.options import AsJson, ProjectOption, RunArgument
from flows.cli.output import emit, guarded, say
from specs.errors import EXIT_DONE, EXIT_VERIFICATION, InputError


@audit.command("list")
@guarded
def list_events(
    run: RunArgument = None,
    kind: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--kind", help="Only events of this kind; may be given several times."),
    ] = None,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Every recorded event, in order."""
    from flows import audit as history
    from flows.cli.find import find_run

    found = find_run(run, project)
    events = history.list_events(found.ledger, found.run, kind or ())
    if as_json:
        emit({"run": found.run, "events": events})
    else:
        for event in events:
            say(f"{event['sequence']:>5}  {event['at']}  {event['kind']:<20} {event['actor']}")
    return EXIT_DONE


@audit.command("show")
@guarded
def show_history(run: RunArgument = None, project: ProjectOption = None, as_json: AsJson = False) -> int:
    """The story of a run: differences first, then stage by stage, expected beside actual, who decided what."""
    from flows import audit as history
    from flows.cli.find import find_run
    from flows.workspace import frozen_spec

    found = find_run(run, project)
    text = history.show(found.ledger, found.run, found.workspace.folder, frozen_spec(found.workspace).language)
    if as_json:
        emit({"run": found.run, "story": text})
    else:
        say(text)
    return EXIT_DONE


@audit.command("verify")
@guarded
def verify_history(
    run: RunArgument = None,
    anchor: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--anchor", help="A head written earlier by `audit anchor` and kept elsewhere."),
    ] = None,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Integrity, completeness and authority of a run's history, apart; works offline."""
    from flows import audit as history
    from flows.cli.find import find_run

    found = find_run(run, project)
    known = history.read_anchor(anchor) if anchor else None
    report = history.verify(found.ledger, found.run, found.workspace.folder, known)
    if as_json:
        emit(report.model_dump(mode="json"))
    else:
        _say_report(report)
    return EXIT_DONE if report.ok else EXIT_VERIFICATION


def _say_report(report: Any) -> None:
    document = report.model_dump(mode="json")
    for part in ("integrity", "completeness", "authority"):
        body = document[part]
        say(f"{part}: {'ok' if body['ok'] else 'FAILED'}")
        for step in body["steps"]:
            mark = "ok  " if step["ok"] else "FAIL"
            say(f"  {step['n']:>2} {mark} {step['check']}: {step['detail']}")
    say("verified" if document["ok"] else "NOT verified")


@audit.command("anchor")
@guarded
def write_anchor(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the head; keep it elsewhere.")],
    run: RunArgument = None,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Write the head of the history to a file for keeping elsewhere; `audit verify --anchor` compares with it."""
    from flows import audit as history
    from flows.cli.find import find_run

    _check_target(file, "audit anchor", run, project)
    found = find_run(run, project)
    head = history.anchor(found.ledger, found.run, file)
    if as_json:
        emit(head.model_dump(mode="json"))
    else:
        say(f"wrote {file}; keep it where nobody who can change the project can change it")
    return EXIT_DONE


@audit.command("export")
@guarded
def export_history(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A zip file to write.")],
    run: RunArgument = None,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Write events, evidence, gates and decisions into a bundle, without raw data and quarantine."""
    from flows import audit as history
    from flows.cli.find import find_run

    _check_target(file, "audit export", run, project)
    found = find_run(run, project)
    names = history.export(found.ledger, found.run, found.workspace.folder, file)
    if as_json:
        emit({"file": str(file), "entries": names})
    else:
        say(f"wrote {file} ({len(names)} entries)")
    return EXIT_DONE


def _check_target(file: Path, command: str, run: str | None, project: Path | None) -> None:
    """Raises `InputError` for a file that exists, and for a run in the place of the file."""
    from flows.cli.find import refuse_run_as_file

    refuse_run_as_file(file, command, run, project)
    if file.exists():
        raise InputError(
            f"{file} exists", f"name a new file, before the run: gatewright {command} FILE RUN; nothing is overwritten"
        )
