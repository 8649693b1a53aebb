"""Commands that decide: approve, rework, reject. Each records one decision and executes nothing."""

from __future__ import annotations

import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from flows.cli.app import app
from flows.cli.language import of_run
from flows.cli.options import AsJson, GateOption, ProjectOption, RunArgument
from flows.cli.output import emit, guarded, readable, say, tell
from flows.cli.run_words import run_word
from specs.base import Language
from specs.decisions import Authentication
from specs.errors import EXIT_DONE, DecisionRefused, InputError

Who = Annotated[str, typer.Option("--as", metavar="WHO", help="The approver who decides, by id.")]
Comment = Annotated[str, typer.Option("-m", "--message", metavar="TEXT", help="Why; kept in the ledger.")]
Shown = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--digest", help="Refuse unless the gate shows this digest; its first 12 digits are enough."),
]
Sign = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--sign", metavar="KEY", help="Sign with this SSH key, or with `default`: your own."),
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
    gate: GateOption = None,
    sign: Sign = None,
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
        edits=pairs(settings or [], "--set"),
        override=override,
        expected_digest=digest,
        key=sign,
        name=gate,
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
    want: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--want", metavar="KEY=VALUE", help="A value that you ask for, or `less` or `more`."),
    ] = None,
    digest: Shown = None,
    gate: GateOption = None,
    sign: Sign = None,
    yes: Yes = False,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Ask for another round; the next proposal must answer the comment and everything that you want."""
    return _decide(
        "rework",
        run,
        project,
        as_json,
        yes,
        actor=who,
        comment=comment,
        rework_stage=stage,
        requests=pairs(want or [], "--want"),
        expected_digest=digest,
        key=sign,
        name=gate,
    )


@app.command()
@guarded
def reject(
    run: RunArgument = None,
    who: Who = ...,  # type: ignore[assignment]
    comment: Comment = "",
    digest: Shown = None,
    gate: GateOption = None,
    sign: Sign = None,
    yes: Yes = False,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """End the run for good."""
    decision: dict[str, Any] = {"actor": who, "comment": comment, "expected_digest": digest, "key": sign, "name": gate}
    return _decide("reject", run, project, as_json, yes, **decision)


@app.command("hand-in")
@guarded
def hand_in(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to hand in, such as the filled sheet.")],
    run: RunArgument = None,
    who: Who = ...,  # type: ignore[assignment]
    stage: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--stage", help="Which stage, where several wait for work."),
    ] = None,
    sign: Sign = None,
    yes: Yes = False,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Hand in a person's work for a stage that waits for it; who did it is recorded, and signed where you sign."""
    from flows.cli.find import find_run
    from flows.cli.running import named
    from flows.handing import hand_in as record_work

    found = find_run(run, project)
    token = token_given()
    said = f"You hand in {file} as {who}, for run {found.run}."
    authentication = confirmed(said, "hand-in", asked=not (sign or token) and asks(yes, as_json))
    document = record_work(
        found.workspace, found.ledger, file, who, stage=stage, authentication=authentication, token=token, key=sign
    )
    if as_json:
        emit(document)
        return EXIT_DONE
    claim = " (unauthenticated: a claim)" if document["authentication"] == "unauthenticated" else ""
    say(f"handed in: {file.name} for {document['stage']} by {who}{claim}, SHA-256 {document['sha256'][:12]}")
    say(
        "a worker goes on with it"
        if document["worker_told"]
        else f"go on: gatewright resume {found.run}{named(found.workspace)}"
    )
    return EXIT_DONE


def pairs(settings: list[str], option: str) -> dict[str, str]:
    """`KEY=VALUE` texts as a dictionary. Raises `InputError` for another text and for a key given twice."""
    found: dict[str, str] = {}
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign or not key:
            raise InputError(f"{option} {setting} is not KEY=VALUE", f"for example {option} lr=1e-4")
        if key in found:
            raise InputError(f"{option} {key} is given twice", "give it once")
        found[key] = value
    return found


def _decide(choice: str, run: str | None, project: Path | None, as_json: bool, yes: bool, **decision: Any) -> int:
    from flows.cli.find import find_run
    from flows.deciding import record

    found = find_run(run, project)
    token = token_given()
    authentication: Authentication = "unauthenticated"
    if not (decision["key"] or token) and asks(yes, as_json):
        decision["expected_digest"] = _confirm(found, choice, decision)
        authentication = "terminal"
    document = record(
        found.workspace, found.ledger, choice=choice, authentication=authentication, token=token, **decision
    )
    if as_json:
        emit(document)
    else:
        _say_recorded(found, choice, document)
    return EXIT_DONE


def _say_recorded(found: Any, choice: str, document: dict[str, Any]) -> None:
    from flows.cli.running import named
    from flows.decide import DIGEST_DIGITS
    from flows.standing import sentence

    language = of_run(found.workspace.folder)
    t = partial(run_word, language)
    claim = t("claim") if document["authentication"] == "unauthenticated" else ""
    told = {name: document[name] for name in ("gate", "round", "actor")}
    say(t("recorded", choice=t(choice), claim=claim, **told))
    if document.get("rehearsed_otherwise"):
        tell(t("note", text=document["rehearsed_otherwise"]))
    if document["kind"] == "gate.amended":
        say(t("shows_edit", digest=document["shows"][:DIGEST_DIGITS]))
    if document["kind"] != "decision.recorded":
        say(f"  {sentence(document, language)}")
    elif document.get("worker_told"):
        say(t("worker_goes_on"))
    elif choice != "reject":
        say(t("go_on", command=f"gatewright resume {found.run}{named(found.workspace)}"))
    else:
        say(t("rejected", run=found.run, project=shlex.quote(str(found.workspace.project_dir))))


def _confirm(found: Any, choice: str, decision: dict[str, Any]) -> str | None:
    """Let the person type the choice again; returns the digest of what was shown here, edits of others included."""
    from flows.state import fold

    expected: str | None = decision["expected_digest"]
    open_gates = fold(found.ledger.events(found.run)).open_gates
    gate = next((gate for gate in open_gates if decision["name"] in (None, gate.name)), None)
    t = partial(run_word, of_run(found.workspace.folder))
    tell(t("you_decide", actor=decision["actor"], choice=t(choice), run=found.run))
    if gate is not None and (decision["name"] or len(open_gates) == 1):
        for said in gate.amendments:
            edits = ", ".join(f"{path} = {value}" for path, value in sorted(said.decision.edits.items()))
            tell(t("edited", actor=said.decision.actor, edits=edits))
        expected = expected or gate.digest
    typed_again(choice, of_run(found.workspace.folder))
    return expected


def token_given() -> str | None:
    """The personal token in the environment; None without one."""
    from flows.tokens import VARIABLE

    return readable(os.environ.get(VARIABLE, "")) or None


def asks(yes: bool, as_json: bool) -> bool:
    """Whether somebody sits at a terminal who can confirm what the command says."""
    return not yes and not as_json and sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(said: str, word: str, *, asked: bool) -> Authentication:
    """Tell the person at the terminal what is about to be recorded and let them type the word; not `asked`: a claim."""
    if not asked:
        return "unauthenticated"
    tell(said)
    typed_again(word)
    return "terminal"


def typed_again(word: str, language: Language = "en") -> None:
    """Raises `DecisionRefused` unless the person at the terminal types the word."""
    sys.stderr.write(run_word(language, "type_again", word=word))
    sys.stderr.flush()
    if sys.stdin.readline().strip() != word:
        raise DecisionRefused("not confirmed, nothing was recorded", f"type {word}, or use --yes")
