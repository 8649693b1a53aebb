"""Who may decide: policy explain, simulate, pin; and the personal tokens that prove who does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from flows.cli.app import policy, token
from flows.cli.deciding import pairs
from flows.cli.options import AsJson, ProjectArgument, ProjectOption
from flows.cli.output import emit, guarded, say
from specs.errors import EXIT_DONE, EXIT_REFUSED, InputError
from specs.policy import duration_s
from specs.policy_check import GATES

if TYPE_CHECKING:
    from specs.events import Payload
    from specs.project import Project

Names = Annotated[Optional[list[str]], typer.Option(metavar="WHO")]  # noqa: UP045


@policy.command()
@guarded
def explain(project: ProjectArgument, as_json: AsJson = False) -> int:
    """Who decides at each gate, how many, how they prove who they are, what expires; from the policy as it is."""
    from flows.explaining import explanation, lines

    loaded = _loaded(project)
    document = explanation(loaded.spec.policy, loaded.spec.graph.order)
    document["pinned"] = _is_pinned(loaded)
    if as_json:
        emit({"project": loaded.spec.project, **document})
    else:
        for line in lines(document, loaded.spec.language):
            say(line)
    return EXIT_DONE


@policy.command()
@guarded
def simulate(
    project: ProjectArgument,
    who: Annotated[str, typer.Option("--as", metavar="WHO", help="Who would decide.")],
    decision: Annotated[str, typer.Option("--decision", metavar="CHOICE", help="approve, rework or reject.")],
    gate: Annotated[str, typer.Option("--gate", help=f"One of {', '.join(GATES)}, or added.")] = "train",
    comment: Annotated[str, typer.Option("-m", "--message", metavar="TEXT", help="The comment.")] = "",
    settings: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--set", metavar="KEY=VALUE", help="An edit; its value is not checked here."),
    ] = None,
    override: Annotated[bool, typer.Option("--override", help="Although a blocking criterion failed.")] = False,
    authentication: Annotated[
        str, typer.Option("--authentication", help="unauthenticated, terminal, token or ssh_signature.")
    ] = "terminal",
    blocked: Annotated[bool, typer.Option("--blocked", help="Suppose that a blocking criterion failed.")] = False,
    approved_by: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--approved-by", metavar="WHO", help="Suppose that this person approved before."),
    ] = None,
    edited_by: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--edited-by", metavar="WHO", help="Suppose that the proposal holds edits of this person."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """What would happen if somebody decided, and why: every rule that speaks. Nothing is recorded."""
    from flows.explaining import simulation
    from specs.rulings import Standing

    loaded = _loaded(project)
    standing = Standing(gate, blocked, approved_by=tuple(approved_by or ()), editors=tuple(edited_by or ()))
    document = simulation(
        loaded.spec.policy,
        standing,
        loaded.spec.graph.order,
        choice=decision,
        actor=who,
        authentication=authentication,
        comment=comment,
        edits=pairs(settings or [], "--set"),
        override=override,
    )
    if as_json:
        emit(document)
    else:
        for ruling in document["rules"]:
            way_out = f" ({ruling['way_out']})" if ruling["way_out"] else ""
            say(f"{'ok    ' if ruling['ok'] else 'REFUSE'}  {ruling['rule']}: {ruling['text']}{way_out}")
        say(document["sentence"])
    return EXIT_DONE if document["accepted"] else EXIT_REFUSED


@policy.command()
@guarded
def pin(
    project: ProjectArgument,
    replace: Annotated[
        bool, typer.Option("--replace", help="Earlier pins no longer hold, nor do runs that began under them.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Keep the policy's digest outside the project, which then runs and is decided on under a pinned policy only."""
    from flows.pinning import pin_policy

    loaded = _loaded(project)
    file = pin_policy(loaded.spec.project, loaded.folder, loaded.spec.policy, replace)
    if as_json:
        emit({"project": loaded.spec.project, "policy": loaded.spec.policy.sha256, "file": str(file)})
    else:
        say(f"pinned {loaded.spec.policy.sha256[:12]} for {loaded.spec.project} in {file}")
    return EXIT_DONE


@policy.command()
@guarded
def unpin(project: ProjectArgument, as_json: AsJson = False) -> int:
    """Take a project's pins out of your own file. The system's file only its administrator changes."""
    from flows.pinning import unpin as take_out

    loaded = _loaded(project)
    count = take_out(loaded.spec.project, loaded.folder)
    if as_json:
        emit({"project": loaded.spec.project, "removed": count})
    else:
        say(f"{count} pins of {loaded.spec.project} removed" if count else f"{loaded.spec.project} was not pinned")
    return EXIT_DONE


def _loaded(project: Path) -> Any:
    from specs.loading import load_project

    return load_project(project)


def _is_pinned(loaded: Any) -> bool:
    from flows.pinning import require_pinned

    return require_pinned(loaded.spec.project, loaded.folder, loaded.spec.policy)


def _record(folder: Path, spec: Project, entry: Payload) -> None:
    """Write an entry about tokens into the project's own chain, by the account of the system."""
    from flows.ledger import Ledger
    from flows.ledger.upkeep import record_upkeep
    from flows.tokens import account
    from flows.workspace import ledger_url

    record_upkeep(Ledger.open(ledger_url(folder, spec)), spec.project, entry, account())


@token.command("new")
@guarded
def new(
    who: Annotated[str, typer.Option("--as", metavar="WHO", help="The approver whom the token proves.")],
    valid: Annotated[str, typer.Option("--for", metavar="TIME", help="How long it holds, such as 12h or 90d.")] = "90d",
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Make a personal token. It is shown this once; only its hash is kept. Use it as GATEWRIGHT_TOKEN."""
    from flows.cli.find import project_folder
    from flows.tokens import Token, new_token, tokens_of
    from specs.events import TokenMade

    folder = project_folder(project)
    try:
        seconds = duration_s(valid)
    except ValueError as error:
        raise InputError(f"--for {valid} {error}", "for example --for 90d") from error
    spec = _loaded(folder).spec

    def record(made: Token) -> None:
        _record(folder, spec, TokenMade(token=made.id, approver=made.approver, expires_at=made.expires_at))

    secret = new_token(folder, spec.policy, who, seconds, record=record)
    made = tokens_of(folder)[-1]
    if as_json:
        emit({"id": made.id, "approver": who, "token": secret, "expires_at": made.expires_at.isoformat()})
    else:
        say(secret)
    return EXIT_DONE


@token.command("list")
@guarded
def list_tokens(project: ProjectOption = None, as_json: AsJson = False) -> int:
    """The tokens of a project: whose, since when, until when. Never the token itself."""
    from datetime import UTC, datetime

    from flows.cli.find import project_folder
    from flows.tokens import tokens_of

    found = tokens_of(project_folder(project))
    now = datetime.now(UTC)
    if as_json:
        kept = [{**t.model_dump(mode="json", exclude={"sha256"}), "valid": t.valid(now)} for t in found]
        emit({"tokens": kept})
        return EXIT_DONE
    for t in found:
        state = "valid" if t.valid(now) else "revoked" if t.revoked_at else "expired"
        say(f"{t.id}  {t.approver}  made {t.created_at:%Y-%m-%d}  until {t.expires_at:%Y-%m-%d}  {state}")
    if not found:
        say("no tokens")
    return EXIT_DONE


@token.command("revoke")
@guarded
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As `gatewright token list` shows it.")],
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """From now on the token proves nothing; decisions that were made with it stay."""
    from flows.cli.find import project_folder
    from flows.tokens import revoke_token
    from specs.events import TokenRevoked

    folder = project_folder(project)
    gone = revoke_token(folder, token_id)  # first what makes the project safer, then its record
    _record(folder, _loaded(folder).spec, TokenRevoked(token=gone.id, approver=gone.approver))
    if as_json:
        emit({"id": gone.id, "approver": gone.approver, "revoked_at": gone.revoked_at})
    else:
        say(f"token {gone.id} of {gone.approver} is revoked")
    return EXIT_DONE
