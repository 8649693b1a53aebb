"""The history for somebody who was not there: audit list, show, diff, verify, export, anchor."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from flows.cli.app import audit
from flows.cli.options import AsJson, ProjectOption, RunArgument
from flows.cli.output import emit, guarded, say, show
from specs.errors import EXIT_DONE, EXIT_VERIFICATION, InputError

if TYPE_CHECKING:
    from flows.audit.history import History
    from flows.audit.report import Step
    from specs.base import Language

Bundle = Annotated[
    Optional[Path],  # noqa: UP045  typer reads this at run time
    typer.Option("--bundle", help="A file written by `audit export`; no project and no database are needed."),
]
Signers = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--signer", help="A public key that you trust, or its .pub file; may be given several times."),
]


@audit.command("list")
@guarded
def list_events(
    run: RunArgument = None,
    kind: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--kind", help="Only events of this kind; may be given several times."),
    ] = None,
    last: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--last", min=1, help="Only the last few."),
    ] = None,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Every recorded event, in order."""
    from flows import audit as history
    from flows.audit.report import visible
    from flows.cli.find import find_run

    found = find_run(run, project)
    events = history.list_events(found.ledger, found.run, kind or (), last=last)
    if as_json:
        _emit_events(found.run, events)
    else:
        for event in events:
            say(f"{event['sequence']:>5}  {event['at']}  {event['kind']:<20} {visible(event['actor'])}")
    return EXIT_DONE


def _emit_events(run: str, events: Iterator[dict[str, Any]]) -> None:
    """One JSON document, written event by event: there may be a million."""
    import json

    sys.stdout.write(f'{{\n  "run": {json.dumps(run)},\n  "events": [')
    for number, event in enumerate(events):
        sys.stdout.write(",\n    " if number else "\n    ")
        sys.stdout.write(json.dumps(event, ensure_ascii=False))
    sys.stdout.write("\n  ]\n}\n")
    sys.stdout.flush()


@audit.command("show")
@guarded
def show_history(
    run: RunArgument = None, bundle: Bundle = None, project: ProjectOption = None, as_json: AsJson = False
) -> int:
    """The story of a run: differences first, then stage by stage, expected beside actual, who decided what.

    In a project with earlier runs it ends with the curve: how far each run's task sheet was from what came.
    """
    from flows import audit
    from flows.audit.story import KEEP
    from flows.curve import lines

    with _history(run, project, bundle, KEEP) as history:
        text = audit.show(history, _language(history))
    errors = [] if bundle else _curve(run, project)
    if as_json:
        emit({"run": history.run, "story": text, "curve": [{"run": r, "errors": e} for r, e in errors]})
    else:
        say("\n".join([text, *lines(errors, _language(history))]))
    return EXIT_DONE


def _curve(run: str | None, project: Path | None) -> Any:
    from flows.cli.find import find_run
    from flows.curve import curve
    from flows.earlier import earlier_results
    from flows.workspace import frozen_spec

    found = find_run(run, project)
    try:
        name = frozen_spec(found.workspace).project
    except InputError:  # a run whose folder is lost still has its story
        return []
    return curve(earlier_results(found.ledger, found.workspace, name, with_this=True).results)


@audit.command("diff")
@guarded
def diff_runs(
    one: Annotated[str, typer.Argument(metavar="RUN1", help="A run's id, or a bundle.")],
    other: Annotated[str, typer.Argument(metavar="RUN2", help="A run's id, or a bundle.")],
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """What differs between two runs: spec, parameters, data, metrics, decisions, versions."""
    from flows.audit.diff import diff
    from flows.audit.words import word

    with _either(one, project) as first, _either(other, project) as second:
        language = _language(first)
        found = diff(first, second, language)
    if as_json:
        emit(found.model_dump(mode="json"))
        return EXIT_DONE
    for section, differences in found.differences.items():
        if differences:
            show(_difference_table(word(language, f"section_{section}"), differences, found.runs))
            say()
    if found.equal:
        say(word(language, "no_difference"))
    counts = [
        word(language, "same_count", count=count, section=word(language, f"section_{section}"))
        for section, count in found.same.items()
        if count
    ]
    say(word(language, "same", what=", ".join(counts) or word(language, "same_nothing")))
    for text in found.unread:
        say(word(language, "not_compared", what=text))
    return EXIT_DONE


def _difference_table(title: str, differences: list[Any], runs: tuple[str, str]) -> Any:
    from rich.table import Table

    from flows.audit.report import visible

    table = Table(title=title, title_justify="left", show_edge=False)
    for column in ("", *runs):
        table.add_column(visible(column), overflow="fold")
    for difference in differences:
        texts = (difference.title, difference.one_shown, difference.other_shown)
        table.add_row(*(visible(text) for text in texts))
    return table


@audit.command("verify")
@guarded
def verify_history(
    run: RunArgument = None,
    bundle: Bundle = None,
    anchor: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--anchor", help="A head written earlier by `audit anchor` and kept elsewhere."),
    ] = None,
    signer: Signers = None,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Integrity, completeness and authority of a run's history, apart; works offline."""
    from flows import audit as history
    from flows.cli.find import find_run

    known = history.read_anchor(anchor) if anchor else None
    if signer and known is None:
        raise InputError("--signer says who must have signed the anchor, and none was given", "add --anchor FILE")
    signers = [public_key(text) for text in signer or ()]
    if bundle is not None:
        _bundle_alone(run, project)
        report = history.verify_bundle(bundle, known, signers)
    else:
        _no_bundle_as_run(run, "verify")
        found = find_run(run, project)
        report = history.verify(found.ledger, found.run, found.workspace.folder, known, signers)
    if as_json:
        emit(report.model_dump(mode="json"))
    else:
        _say_report(report)
    return EXIT_DONE if report.ok else EXIT_VERIFICATION


def public_key(text: str) -> str:
    """A public key, given as it is or as the file it lies in. Raises `InputError` for anything else."""
    from specs.ssh_keys import plain_key

    try:
        path = Path(text).expanduser()
        if " " not in text and path.is_file():
            text = path.read_text(encoding="utf-8")
        return plain_key(text)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{text[:100]!r} is no public key: {error}", "name a .pub file, or give the line that stands in it"
        ) from error


def _say_report(report: Any) -> None:
    for name, part in report.parts.items():
        say(f"{name}: {'ok' if part.ok else 'FAILED'}")
        say_steps(part.steps)
    steps = [step for part in report.parts.values() for step in part.steps]
    left = sum(step.verified != "all" for step in steps)
    said = f"; {left} of {len(steps)} steps say what they could not verify" if left else ""
    say(("verified" if report.ok else "NOT verified") + said)


def say_steps(steps: Sequence[Step]) -> None:
    """A line per step: passed, passed in part, not verified, or failed."""
    marks = {"all": "ok  ", "part": "part", "none": "--  "}
    for step in steps:
        say(f"  {step.n:>2} {marks[step.verified] if step.ok else 'FAIL'} {step.check}: {step.detail}")


@audit.command("anchor")
@guarded
def write_anchor(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the head; keep it elsewhere.")],
    run: RunArgument = None,
    sign: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--sign", metavar="KEY", help="Sign it with this SSH key."),
    ] = None,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Write the head of the history to a file for keeping elsewhere; `audit verify --anchor` compares with it."""
    from flows import audit as history
    from flows.cli.find import find_run

    _check_target(file, "audit anchor", run, project)
    found = find_run(run, project)
    head = history.anchor(found.ledger, found.run, file, sign)
    if as_json:
        emit(head.model_dump(mode="json"))
    else:
        how = "signed" if sign else "not signed"
        say(f"wrote {file}, {how}; keep it where nobody who can change the project can change it")
    return EXIT_DONE


@audit.command("export")
@guarded
def export_history(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A zip file to write.")],
    run: RunArgument = None,
    artifacts: Annotated[
        bool, typer.Option("--artifacts", help="Artifacts, released files and transcripts too; no raw data.")
    ] = False,
    raw_data: Annotated[
        bool,
        typer.Option("--dangerously-include-raw-data", help="Raw files and quarantined rows too, as they were given."),
    ] = False,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Write events, evidence, gates and decisions into a bundle, without raw data and quarantine."""
    from flows import audit as history
    from flows.cli.find import find_run

    _check_target(file, "audit export", run, project)
    found = find_run(run, project)
    raw_data_of = found.workspace.project_dir if raw_data else None
    folder = found.workspace.folder
    contents = history.export(
        found.ledger, found.run, folder, file, artifacts=artifacts, dangerously_raw_data_of=raw_data_of
    )
    if as_json:
        left_out = dict(sorted(contents.left_out.items()))
        emit({"file": str(file), "entries": list(contents.entries), "left_out": left_out})
        return EXIT_DONE
    say(f"wrote {file} ({len(contents.entries)} entries)")
    for what, count in sorted(contents.left_out.items()):
        say(f"  left out: {count} {what}")
    return EXIT_DONE


@contextmanager
def _history(
    run: str | None, project: Path | None, bundle: Path | None, keep: frozenset[str] = frozenset()
) -> Iterator[History]:
    """The history that a command means: a run's, or a bundle's."""
    from flows.audit.history import read_history
    from flows.audit.unpacking import unpacked
    from flows.cli.find import find_run

    if bundle is not None:
        _bundle_alone(run, project)
        with unpacked(bundle, keep=keep) as (history, _):
            yield history
        return
    _no_bundle_as_run(run, "show")
    found = find_run(run, project)
    yield read_history(found.ledger, found.run, found.workspace.folder, keep=keep)


@contextmanager
def _either(name: str, project: Path | None) -> Iterator[History]:
    """The history of a run, or of a bundle in the place of one."""
    path = Path(name)
    is_file = len(name) < 1000 and path.is_file()
    with _history(None if is_file else name, None if is_file else project, path if is_file else None) as history:
        yield history


def _language(history: History) -> Language:
    from flows.cli.language import of_run

    return of_run(history.run_dir)


def _bundle_alone(run: str | None, project: Path | None) -> None:
    if run is not None or project is not None:
        raise InputError("a bundle holds its run; a run or project beside --bundle means nothing", "leave it out")


def _no_bundle_as_run(run: str | None, command: str) -> None:
    if run is not None and len(run) < 1000 and Path(run).is_file():
        raise InputError(f"{run} is a file, not a run", f"name a bundle so: gatewright audit {command} --bundle FILE")


def _check_target(file: Path, command: str, run: str | None, project: Path | None) -> None:
    """Raises `InputError` for a file that exists, and for a run in the place of the file."""
    from flows.cli.find import refuse_run_as_file

    refuse_run_as_file(file, command, run, project)
    if file.exists():
        raise InputError(
            f"{file} exists", f"name a new file, before the run: gatewright {command} FILE RUN; nothing is overwritten"
        )
