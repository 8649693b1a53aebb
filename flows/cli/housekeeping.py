"""Commands that keep house: close, go-on, gc, forget, backup, restore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from flows.cli.app import app
from flows.cli.deciding import Sign, asks, confirmed, token_given
from flows.cli.deciding import Yes as Unasked
from flows.cli.options import AsJson, ProjectOption, RunArgument
from flows.cli.output import emit, guarded, say, tell
from specs.errors import EXIT_DONE, InputError

Who = Annotated[str, typer.Option("--as", metavar="WHO", help="Who does it; recorded.")]
Why = Annotated[str, typer.Option("-m", "--message", metavar="TEXT", help="Why; recorded.")]

Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this the command only shows what it would do.")]


@app.command()
@guarded
def close(
    run: RunArgument = None,
    who: Who = ...,  # type: ignore[assignment]
    why: Why = "",
    sign: Sign = None,
    yes: Unasked = False,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """End a run that cannot go on: its folder is lost, or it only fails. A run at a gate is rejected instead."""
    from flows.cli.find import find_run
    from flows.closing import close_run

    found = find_run(run, project)
    token = token_given()
    said = f"You end run {found.run} as {who}."
    authentication = confirmed(said, "close", asked=not (sign or token) and asks(yes, as_json))
    event = close_run(found.workspace, found.ledger, who, why, authentication=authentication, token=token, key=sign)
    if as_json:
        emit({"run": found.run, "sequence": event.sequence, **event.payload})
        return EXIT_DONE
    lost = event.payload["lost"]
    say(f"run {found.run} is closed" + (f"; lost: {', '.join(lost)}" if lost else ""))
    return EXIT_DONE


@app.command(name="go-on")
@guarded
def go_on(
    run: RunArgument = None,
    who: Who = ...,  # type: ignore[assignment]
    why: Why = "",
    sign: Sign = None,
    yes: Unasked = False,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Let a training go on that its early judgement ended, or whose checkpoint is of another device or of other
    libraries. Recorded with the reason; `gatewright resume` goes on."""
    from flows.cli.find import find_run
    from flows.overruling import about, overrule

    found = find_run(run, project)
    token = token_given()
    seen = about(found.workspace, found.ledger)
    said = "\n".join([*seen, f"You let the training of run {found.run} go on, as {who}."])
    authentication = confirmed(said, "go on", asked=not (sign or token) and asks(yes, as_json))
    event = overrule(
        found.workspace,
        found.ledger,
        who,
        why,
        authentication=authentication,
        token=token,
        key=sign,
        shown=seen,
    )
    if as_json:
        emit({"run": found.run, "sequence": event.sequence, **event.payload})
        return EXIT_DONE
    for line in seen:
        say(line)
    say("recorded: the training goes on")
    say(f"  gatewright resume {found.run}")
    return EXIT_DONE


@app.command()
@guarded
def gc(
    project: Annotated[Optional[Path], typer.Argument(metavar="PROJECT", help="Default: the project here.")] = None,  # noqa: UP045
    older_than: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--older-than", metavar="AGE", help="Days or hours: 7d, 12h, 0. Default: retention in the spec."),
    ] = None,
    quota: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--quota",
            metavar="SIZE",
            help="Delete only as much, oldest first, as brings it below: 50GB. Default: retention in the spec.",
        ),
    ] = None,
    who: Annotated[str, typer.Option("--as", metavar="WHO", help="Who does it; recorded.")] = "gatewright",
    yes: Yes = False,
    as_json: AsJson = False,
) -> int:
    """Show or delete what nothing recorded refers to: left attempts, spent checkpoints, stages run by themselves."""
    from datetime import UTC, datetime

    from flows import cleaning
    from flows.cli.find import project_folder
    from specs.loading import load_project

    folder = project_folder(project)
    spec = load_project(folder).spec
    age, quota = older_than or spec.retention.older_than, spec.retention.quota if quota is None else quota
    findings = cleaning.find_garbage(folder, spec, datetime.now(UTC), cleaning.parse_age(age))
    chosen, over = findings.candidates, 0
    if quota:
        chosen, over = cleaning.within_quota(findings, cleaning.parse_bytes(quota))
    freed = cleaning.delete(folder, spec, chosen, who) if yes else 0
    if as_json:
        emit(
            {
                "deleted": yes,
                "candidates": [vars(c) for c in chosen],
                "left_alone": [vars(b) for b in findings.busy],
                "project_bytes": findings.project_bytes,
                "freed_bytes": freed,
                "over_quota_bytes": over,
            }
        )
        return EXIT_DONE
    for candidate in chosen:
        say(f"{candidate.bytes / 1e6:10.1f} MB  {candidate.path}  ({candidate.rule})")
    for busy in findings.busy:
        tell(f"left alone: run {busy.run}: {busy.why}")
    total = sum(c.bytes for c in chosen)
    if not chosen:
        say("nothing to delete")
    elif yes:
        say(f"deleted {len(chosen)} of them, {freed / 1e6:.1f} MB; each is recorded")
    else:
        say(f"{total / 1e6:.1f} MB would be deleted; nothing was. Do it with --yes")
    if over:
        tell(f"the project stays {over / 1e6:.1f} MB above the quota: everything else is recorded or still needed")
    return EXIT_DONE


@app.command()
@guarded
def forget(
    run: RunArgument = None,
    path: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--path", metavar="PATH", help="A file or folder of the run, relative to its folder."),
    ] = None,
    containing: Annotated[str, typer.Option("--containing", metavar="TEXT", help="All files that hold it.")] = "",
    who: Who = ...,  # type: ignore[assignment]
    why: Why = "",
    yes: Yes = False,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Remove files of a run on request, such as a person's data. Their digests stay in the record, which says so."""
    from flows.cli.find import find_run
    from flows.removal import remove, search
    from flows.state import fold
    from flows.unseen import showing

    found = find_run(run, project)
    state = fold(found.ledger.events(found.run))
    paths = list(path or [])
    hits = search(found.workspace, found.ledger, containing) if containing else None
    if hits:
        paths += hits.removable
    if not paths and not hits:
        raise InputError("say what to remove", "--path FILE names it, --containing TEXT finds it")
    named = [f for p in paths for f in ([p] if (found.workspace.folder / p).is_file() else _below(found.workspace, p))]
    gates = showing(found.workspace, state, named)
    removed: Any = []
    if yes and paths:
        name = found.ledger.run(found.run).project
        removed = remove(found.workspace, found.ledger, name, paths, who, why).model_dump(mode="json")["files"]
    if as_json:
        emit(
            {
                "run": found.run,
                "removed": removed,
                "found": sorted(set(paths)),
                "in_the_record": hits.record if hits else [],
                "in_events": hits.events if hits else [],
                "open_gates": [vars(gate) for gate in gates],
            }
        )
        return EXIT_DONE
    for name in sorted(set(paths)):
        say(f"  {name}")
    say(f"removed {len(removed)} files" if yes else f"{len(set(paths))} files would be removed; do it with --yes")
    for gate in gates:
        tell(("warning: " if yes else "warning, if you do: ") + gate.sentence(found.run))
    if hits and (hits.record or hits.events):
        numbers = ", ".join(map(str, hits.events))
        tell(f"cannot be taken back: {', '.join(hits.record) or 'no document'}; events: {numbers or 'none'}")
    tell("raw files, and weights that were trained on the data, are not searched: see docs/operations.md")
    return EXIT_DONE


def _below(workspace: Any, path: str) -> list[str]:
    """The files below a folder of a run; none where there is no such folder."""
    folder = workspace.folder / path
    return [p.relative_to(workspace.folder).as_posix() for p in sorted(folder.rglob("*")) if p.is_file()]


@app.command()
@guarded
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write; .tar, or .tar.gz to compress.")],
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Write a project to one file: runs, raw files, and its ledger as one consistent state."""
    from flows.backup import back_up
    from flows.cli.find import project_folder
    from specs.loading import load_project

    folder = project_folder(project)
    made = back_up(folder, load_project(folder).spec, file.absolute())
    size = sum(f.bytes for f in made.files)
    if as_json:
        emit({"file": str(file), "files": len(made.files), "bytes": size, **made.model_dump(exclude={"files"})})
        return EXIT_DONE
    say(f"{file}: {len(made.files)} files, {size / 1e6:.1f} MB; back with: gatewright restore {file} DIR")
    if made.ledger is None:
        tell("the ledger lies outside the project and is not in this file: back up its database too")
    for link in made.links_left_out:
        tell(f"left out, a link: {link}")
    return EXIT_DONE


@app.command()
@guarded
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `gatewright backup` wrote.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The project's new folder; must not exist.")],
    as_json: AsJson = False,
) -> int:
    """Make a project from its backup, here or on another machine. Every file is compared first."""
    from flows.backup import restore as restored

    made = restored(file, folder.absolute())
    if as_json:
        emit({"folder": str(folder), "files": len(made.files), "project": made.project, "ledger": made.ledger})
        return EXIT_DONE
    say(f"{folder}: {len(made.files)} files as they were on {made.made_at:%Y-%m-%d %H:%M} UTC")
    if made.ledger is None:
        tell("the ledger is not in the backup: restore its database, and let `ledger:` in project.yaml name it")
    return EXIT_DONE
