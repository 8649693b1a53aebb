"""Commands that decide: approve, rework, reject. Each records one decision and executes nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from flows.cli.app import app
from flows.cli.options import AsJson, ProjectOption, RunArgument
from flows.cli.output import emit, guarded, say, tell
from specs.decisions import Authentication
from specs.errors import EXIT_DONE, DecisionRefused, InputError

Who = Annotated[str, typer.Option("--as", metavar="WHO", help="The approver who decides, by id.")]
Comment = Annotated[str, typer.Option("-m", "--message", metavar="TEXT", help="Why; kept in the ledger.")]
Shown = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--digest", help="Refuse unless the gate shows exactly this digest."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation; the decision is then a mere claim.")]


@app.command()
@guarded
def approve(
    run: RunArgument = None,
    who: Who = ...,  # type: ignore[assignment]
    comment: Comment = "",
    settings: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--set", metavar="KEY=VALUE", help="Change a parameter; checked like a proposal."),
    ] = None,
    override: Annotated[bool, typer.Option("--override", help="Although a blocking criterion failed.")] = False,
    digest: Shown = None,
    yes: Yes = False,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Approve the open gate, as proposed or with edits."""
    return _decide(
        "approve",
        run,
        project,
        as_json,
        yes,
        actor=who,
        comment=comment,
        edits=_edits(settings or []),
        override=override,
        expected_digest=digest,
    )


@app.command()
@guarded
def rework(
    run: RunArgument = None,
    who: Who = ...,  # type: ignore[assignment]
    comment: Comment = "",
    stage: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--stage", help="Go back to this stage; its later attempts are superseded."),
    ] = None,
    digest: Shown = None,
    yes: Yes = False,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Ask for another round; the comment is what the next proposal must answer."""
    return _decide(
        "rework", run, project, as_json, yes, actor=who, comment=comment, rework_stage=stage, expected_digest=digest
    )


@app.command()
@guarded
def reject(
    run: RunArgument = None,
    who: Who = ...,  # type: ignore[assignment]
    comment: Comment = "",
    digest: Shown = None,
    yes: Yes = False,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """End the run for good."""
    return _decide("reject", run, project, as_json, yes, actor=who, comment=comment, expected_digest=digest)


def _edits(settings: list[str]) -> dict[str, str]:
    edits: dict[str, str] = {}
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign or not key:
            raise InputError(f"--set {setting} is not KEY=VALUE", "for example --set lr=1e-4")
        if key in edits:
            raise InputError(f"--set {key} is given twice", "give it once")
        edits[key] = value
    return edits


def _decide(choice: str, run: str | None, project: Path | None, as_json: bool, yes: bool, **decision: Any) -> int:
    from flows.cli.find import find_run
    from flows.deciding import record

    found = find_run(run, project)
    confirmed = False
    if not yes and not as_json and sys.stdin.isatty() and sys.stderr.isatty():
        confirmed = _confirm(choice, found.run, decision["actor"])
    authentication: Authentication = "terminal" if confirmed else "unauthenticated"
    document = record(found.workspace, found.ledger, choice=choice, authentication=authentication, **decision)
    if as_json:
        emit(document)
        return EXIT_DONE
    claim = "" if confirmed else " (unauthenticated: a claim, allowed because the policy is solo)"
    say(f"recorded: {choice} of gate {document['gate']} round {document['round']} by {document['actor']}{claim}")
    if document.get("worker_told"):
        say("a worker goes on with it")
    elif choice != "reject":
        from flows.cli.running import named

        say(f"go on: gatewright resume {found.run}{named(found.workspace)}")
    return EXIT_DONE


def _confirm(choice: str, run: str, actor: str) -> bool:
    tell(f"You decide as {actor}: {choice} run {run}.")
    sys.stderr.write(f"Type {choice} to confirm: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != choice:
        raise DecisionRefused("not confirmed, nothing was recorded", f"type {choice}, or use --yes")
    return True
