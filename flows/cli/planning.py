"""Commands before a run: init, check, schema, decompose."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from flows.cli.app import app
from flows.cli.language import of_project
from flows.cli.options import AsJson, ProjectArgument
from flows.cli.output import emit, guarded, say, show, tell
from flows.cli.run_words import run_word
from specs.errors import EXIT_DONE, SpecError


@app.command()
@guarded
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that does not exist yet, or is empty.")],
    example: Annotated[str | None, typer.Option("--example", help="Start from an example, such as cnc-repair.")] = None,
    lang: Annotated[str, typer.Option("--lang", help="en or zh.")] = "en",
    added_stages: Annotated[
        bool, typer.Option("--added-stages", help="With three example stages of the project's own; docs/stages.md.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Make a new project: a commented project.yaml, and the raw data of an example when one is named."""
    from flows.new_project import create

    made = create(folder, example, lang, added_stages)
    if as_json:
        emit({"project": str(folder.resolve()), "files": made})
    else:
        t = partial(run_word, of_project(folder))
        say(t("made" if len(made) > 1 else "made_one", folder=folder, count=len(made)))
        if not example:
            say(t("put_files", raw=folder / "raw", spec=folder / "project.yaml"))
        say(t("next_check", command=f"gatewright check {shlex.quote(str(folder))}"))
    return EXIT_DONE


@app.command()
@guarded
def check(project: ProjectArgument, as_json: AsJson = False) -> int:
    """Validate the spec and the sources; every problem at once, then every setting with its default."""
    from specs.credentials import without_secrets
    from specs.defaults import effective_spec
    from specs.loading import load_project
    from tasks.check import check_project, with_proposals

    try:
        loaded = load_project(project)
    except SpecError as error:
        raise with_proposals(error, project) from None
    report = check_project(loaded, with_model=True)
    if report.problems:
        raise SpecError(report.problems)
    settings = effective_spec(without_secrets(loaded.spec))
    if as_json:
        emit(
            {
                "project": loaded.spec.project,
                "sources": [s.model_dump(mode="json") for s in report.sources],
                "settings": [{"path": p, "value": v, "default": d} for p, v, d in settings],
                "notes": report.notes,
                "previews": [{"source": n, "rows": rows} for n, rows in sorted(report.previews.items())],
            }
        )
        return EXIT_DONE
    show(_sources_table(report.sources))
    if any(s.kind in ("manuals", "notes", "sensor_logs") for s in report.sources):
        say("  rows of manuals and notes are blocks of text, of logs readings; the data stage makes paragraphs,")
        say("  notes and windows of them, and its report counts those")
    _say_previews(report)
    for path, value, is_default in settings:
        say(f"  {path}: {_yaml(value)}" + ("   (default)" if is_default else ""))
    for note in report.notes:
        say(f"  note: {note}")
    say(f"{loaded.file}: no problems")
    say(f"  next: gatewright run {shlex.quote(str(project))}")
    return EXIT_DONE


def _say_previews(report: Any) -> None:
    """How the first rows of each table are read, so that a wrong mapping is seen before anything runs."""
    from tasks.data.mapping import preview_text

    for number, rows in sorted(report.previews.items()):
        say(f"  sources[{number}], {report.sources[number].path}, first rows:")
        for row in rows:
            say(f"    {preview_text(row)}")


def _yaml(value: Any) -> str:
    """A value as a person would write it in project.yaml."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _sources_table(sources: Any) -> Any:
    from rich.table import Table

    table = Table(title="sources", title_justify="left")
    for column in ("kind", "path", "files", "rows", "encoding"):
        table.add_column(column)
    for source in sources:
        encodings = ", ".join(sorted(set(source.encodings.values())))
        table.add_row(source.kind, source.path, str(len(source.files)), str(source.rows), encodings)
    return table


@app.command()
@guarded
def schema(as_json: AsJson = True) -> int:
    """JSON Schema of project.yaml, for editors."""
    from specs.schema import project_json_schema

    emit(project_json_schema())
    return EXIT_DONE


@app.command()
@guarded
def decompose(
    project: ProjectArgument,
    goal: Annotated[
        str | None, typer.Argument(metavar="GOAL", help="One line: what the model should be able to do.")
    ] = None,
    write: Annotated[
        bool,
        typer.Option("--write", help="Write task_sheet.yaml into the project: the file that the first gate signs."),
    ] = False,
    to: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--to", metavar="FILE", help="Write it there instead: .yaml, or .md or .html to read."),
    ] = None,
    check_file: Annotated[
        bool, typer.Option("--check", help="Check the project's task_sheet.yaml and show it, as the first gate would.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Draft the task sheet: per stage its inputs, expected outputs in numbers, criteria, budget and signers."""
    from agents.reporter import sheet_page
    from flows.cli.progress import for_terminal
    from flows.decomposing import draft, require_no_goal, write_to
    from flows.sheets import read_back

    if write or check_file or to is not None:
        require_no_goal(goal, to)
    with for_terminal(of_project(project)) as progress:
        drafted = draft(project, goal, progress)
    spec, sheet = drafted.loaded.spec, drafted.sheet
    if check_file:
        sheet = read_back(drafted.loaded.folder, drafted.context, sheet)
    written = write_to(drafted, to, sheet) if write or to else None
    if as_json:
        emit(sheet.model_dump(mode="json"))
    elif written is None:
        from flows.cli.pages import Page

        show(Page(sheet_page(sheet, spec)))
    if written is not None:
        t = partial(run_word, spec.language)
        tell(t("wrote", file=written.file) + (t("numbers_kept", count=written.kept) if written.kept else ""))
        blocking = sum(f.blocking for f in sheet.findings)
        tell(t("leaves_open", open=len(sheet.findings), blocking=blocking))
    for note in drafted.notes:
        tell(f"note: {note}")
    return EXIT_DONE
