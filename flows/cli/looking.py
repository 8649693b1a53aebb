"""Commands that look: status, gates, runs, review, verify."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from flows.cli.app import app
from flows.cli.language import of_run
from flows.cli.options import AsJson, GateOption, ProjectOption, RunArgument
from flows.cli.output import emit, guarded, say, show, tell
from flows.cli.run_words import run_word
from specs.base import Language
from specs.errors import EXIT_DONE, EXIT_VERIFICATION, GatewrightError, InputError
from specs.metrics import STAGES

Projects = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option("--project", "-p", help="May be given several times. Default: the project here."),
]

Folders = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Argument(metavar="[PROJECT]...", help="Folders of projects. Default: the project here."),
]


@app.command()
@guarded
def status(run: RunArgument = None, project: ProjectOption = None, as_json: AsJson = False) -> int:
    """Where a run stands: stages, verdicts, and the gate that waits."""
    from flows.cli.find import look_for

    workspace, ledger = look_for(run, project)
    document = standing_of(workspace, ledger)
    if as_json:
        emit(document)
        return EXIT_DONE
    _say_standing(workspace, document)
    return EXIT_DONE


def _say_standing(workspace: Any, document: dict[str, Any]) -> None:
    from flows.cli.running import named

    language = of_run(workspace.folder)
    t = partial(run_word, language)
    show(_stage_table(document, language))
    told = {"run": document["run"], "project": document["project"], "state": t(f"run_{document['state']}")}
    if document["rehearsal"] is None:
        say(t("stands", **told))
    else:
        say(t("rehearsal_stands", share=f"{100 * document['rehearsal']:g}", **told))
    where = named(workspace)
    for gate in document["open_gates"]:
        say(t("open_gate", gate=gate["id"], round=gate["round"], sentence=_sentence(gate, language)))
    for stage in document["work"]:
        failed = any(s["name"] == stage and s["state"] == "failed" for s in document["stages"])
        command = f"gatewright hand-in FILE {document['run']} --stage {stage} --as WHO"
        say(t("work_failed" if failed else "work_waits", stage=stage, command=command))
    if document["open_gates"]:
        say(t("next_look", command=f"gatewright review {document['run']}{where}"))
    elif document["state"] in ("decided", "stopped", "failed"):
        say(t("next_go_on", command=f"gatewright resume {document['run']}{where}"))


def _sentence(gate: dict[str, Any], language: Language = "en") -> str:
    from flows.standing import sentence

    if gate.get("way_out"):
        return str(gate["way_out"])
    return sentence(gate, language) if "quorum" in gate else run_word(language, "waits_for_decision")


def _minute(moment: str) -> str:
    """A recorded time as a person reads it."""
    return moment[:16].replace("T", " ") + " UTC"


def status_of(found: Any) -> dict[str, Any]:
    """The status document of a run."""
    return standing_of(found.workspace, found.ledger)


def standing_of(workspace: Any, ledger: Any) -> dict[str, Any]:
    """The same, from anything that reads the run's events. Without its policy nobody can be said to be waited for."""
    from flows.standing import waiting
    from flows.state import fold, gate_entry, status_document
    from flows.workspace import frozen_policy

    state = fold(ledger.events(workspace.run))
    name = state.created.project if state.created else ""
    more = None
    others = []
    if state.gate:
        try:
            policy = frozen_policy(workspace)
            more = waiting(policy, state.gate)
            others = [waiting(policy, gate) for gate in state.open_gates]
        except InputError as error:
            tell(f"run {workspace.run}: {error.message}; gatewright close {workspace.run} ends a run that is lost")
    who = more.waits_for if more else ()
    document = status_document(state, workspace.run, name, waits_for=who, more=more.document() if more else None)
    if document["open_gates"] and others:
        document["open_gates"] = [
            gate_entry(workspace.run, gate, found.waits_for, found.document())
            for gate, found in zip(state.open_gates, others, strict=True)
        ]
    if state.open_gates:
        from flows.unseen import unseen

        gone = {(found.gate, found.round): found for found in unseen(workspace, state)}
        for gate, entry in zip(state.open_gates, document["open_gates"], strict=True):
            found = gone.get((gate.name, gate.round))
            entry["missing"] = found.files if found else []
            entry["way_out"] = found.sentence(workspace.run) if found else ""
    return document


def _stage_table(document: dict[str, Any], language: Language) -> Any:
    from rich.table import Table

    t = partial(run_word, language)
    table = Table(title=None, show_edge=False)
    for column in ("stage", "attempt", "state", "criteria"):
        table.add_column(t(f"column_{column}"), overflow="fold")
    for stage in document["stages"]:
        verdicts = [v for v in stage["verdicts"] if v.get("applies", True)]
        others = len(stage["verdicts"]) - len(verdicts)
        failed = [v for v in verdicts if not v["passed"]]
        words = t("passed_of", passed=len(verdicts) - len(failed), all=len(verdicts)) if verdicts else ""
        if failed:
            marks = [v["metric"] + ("" if v["blocking"] else t("is_warning")) for v in failed]
            words += t("and_failed", names=t("comma").join(marks))
        if others:
            words += t("and_not_applicable", count=others)
        table.add_row(stage["name"], str(stage["attempt"] or ""), t(f"attempt_{stage['state']}"), words)
    return table


@app.command()
@guarded
def gates(folders: Folders = None, project: Projects = None, as_json: AsJson = False) -> int:
    """Every open gate of one or several projects."""
    from flows.ledgers import OPEN_STATES

    found = []
    for workspace, ledger, _row in _runs_of(folders, project, states=OPEN_STATES):
        document = standing_of(workspace, ledger)
        found += [
            {
                "project": document["project"],
                "run": workspace.run,
                "rehearsal": document["rehearsal"],
                **gate,
                "folder": str(workspace.project_dir),
            }
            for gate in document["open_gates"]
        ]
    if as_json:
        emit({"gates": found})
        return EXIT_DONE
    for gate in found:
        since = _minute(gate["opened_at"])
        kind = "" if gate["rehearsal"] is None else "rehearsal, "
        say(f"{gate['project']}  {gate['run']}  {kind}gate {gate['id']} round {gate['round']}  open since {since}")
        say(f"  {_sentence(gate)}")
        say(f"  gatewright review {gate['run']} --project {shlex.quote(gate['folder'])}")
    if not found:
        say("no gate is open")
    return EXIT_DONE


@app.command()
@guarded
def runs(
    folders: Folders = None,
    project: Projects = None,
    last: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--last", metavar="N", min=1, help="Only the newest N of each project."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """All runs of one or several projects, oldest first."""
    rows = [row for _workspace, _ledger, row in _runs_of(folders, project, limit=last)]
    if as_json:
        emit(
            {
                "runs": [
                    {"run": r.run, "project": r.project, "state": r.state, "stage": r.stage, "created_at": r.created_at}
                    for r in rows
                ]
            }
        )
        return EXIT_DONE
    for row in rows:
        say(f"{row.created_at:%Y-%m-%d %H:%M}  {row.run}  {row.project}  {row.state}  {row.stage}")
    if not rows:
        say("no runs")
    return EXIT_DONE


def _runs_of(
    folders: list[Path] | None, projects: list[Path] | None, *, states: Any = None, limit: int | None = None
) -> list[tuple[Any, Any, Any]]:
    """The runs of the projects that are named, or of the project here, oldest first: (workspace, ledger, row)."""
    from flows.cli.find import look_at, place_of, project_folder

    found, seen = [], set()
    for chosen in [*(folders or []), *(projects or [])] or [None]:  # type: ignore[list-item]
        folder = project_folder(chosen)
        try:
            ledger = look_at(folder)
        except InputError:
            continue
        for row in ledger.runs(states=states, limit=limit):
            workspace = place_of(row, folder)
            if (row.run, workspace.project_dir) not in seen:
                seen.add((row.run, workspace.project_dir))
                found.append((workspace, ledger, row))
    return sorted(found, key=lambda item: (item[2].created_at, item[2].run))


@app.command()
@guarded
def review(
    run: RunArgument = None, project: ProjectOption = None, gate: GateOption = None, as_json: AsJson = False
) -> int:
    """The open gate in the terminal: evidence of the finished stage, the proposal for the next one."""
    from flows.cli.find import find_run
    from flows.rehearsing import rehearsal_note
    from flows.reviewing import gate_facts, page

    found = find_run(run, project)
    facts = gate_facts(found.workspace, found.ledger, gate)
    note = rehearsal_note(found.workspace, found.ledger, facts.state, facts.gate.name, facts.proposal)
    if as_json:
        emit({**facts.document(), "rehearsed_otherwise": note})
        return EXIT_DONE
    from flows.cli.pages import Page
    from flows.cli.running import how_to_decide

    show(Page(page(facts)))
    say(note)
    how_to_decide(facts.state, found.workspace)
    return EXIT_DONE


def _is_stage_here(word: str, project: Path | None) -> bool:
    """Whether a word in the place of a run names a stage of the run here instead."""
    from flows.cli.find import find_run
    from flows.cli.running import stages_of

    if word in STAGES:
        return True
    try:
        return word in stages_of(find_run(None, project).workspace)
    except GatewrightError:
        return False


@app.command()
@guarded
def verify(
    run: RunArgument = None,
    stage: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="STAGE", help="Default: every stage that was published."),
    ] = None,
    project: ProjectOption = None,
    as_json: AsJson = False,
) -> int:
    """Recompute metrics and verdicts of a run's stages from their artifacts alone."""
    from flows.cli.find import find_run
    from flows.cli.running import check_until, stages_of
    from flows.verifying import verify_stage

    if stage is None and run is not None and _is_stage_here(run, project):  # `gatewright verify data`: the run here
        run, stage = None, run
    found = find_run(run, project)
    known = stages_of(found.workspace)
    check_until(stage, known)
    results = []
    for name in [stage] if stage else known:
        result = verify_stage(found.workspace, found.ledger, name)
        if result is None and stage:
            raise InputError(f"{stage} has no published attempt in {found.run}", "gatewright status shows what has")
        if result is not None:
            results.append(result)
    good = all(r.ok for r in results)
    if as_json:
        emit({"run": found.run, "ok": good, "stages": [r.model_dump(mode="json") for r in results]})
    else:
        for result in results:
            fine = "removed on request, cannot be recomputed" if result.removed else "as recorded"
            say(f"{result.stage} attempt {result.attempt}: " + (fine if result.ok else "DIFFERS"))
            for line in result.removed:
                say(f"  {line} was removed on request")
            for line in result.differences:
                say(f"  {line}")
            if result.newer:
                say(f"  not known to the code of that time: {', '.join(result.newer)}")
    return EXIT_DONE if good else EXIT_VERIFICATION
