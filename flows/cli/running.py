"""Commands that move a run: run, resume, stop, stage; and the Prefect side: up, down, deploy."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from flows.cli.app import app
from flows.cli.language import of_project, of_run
from flows.cli.options import AsJson, ProjectArgument, ProjectOption, RunArgument
from flows.cli.output import emit, guarded, say, tell
from flows.cli.run_words import STOPPED, run_word
from specs.criteria import blocked
from specs.errors import (
    EXIT_DONE,
    EXIT_REJECTED,
    EXIT_STOPPED,
    EXIT_WAITING,
    EXIT_WAITING_FAILED_CRITERION,
    GatewrightError,
    InputError,
)
from specs.metrics import STAGES

ENDINGS = {
    "finished": EXIT_DONE,
    "until": EXIT_DONE,
    "waiting": EXIT_WAITING,
    "waiting_blocked": EXIT_WAITING_FAILED_CRITERION,
    "rejected": EXIT_REJECTED,
    "stopped": EXIT_STOPPED,
}
Until = Annotated[Optional[str], typer.Option("--until", metavar="STAGE", help="Stop when this stage is done.")]  # noqa: UP045


@app.command()
@guarded
def run(
    project: ProjectArgument,
    run_id: Annotated[Optional[str], typer.Option("--run-id", help="Default: date and time.")] = None,  # noqa: UP045
    until: Until = None,
    rehearse: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            "--rehearse",
            metavar="SHARE",
            help="Rehearse the whole chain on this share of the samples, such as 0.01; nothing of it is released.",
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Hand the run to a worker and return.")] = False,
    as_json: AsJson = False,
) -> int:
    """Start a run: it goes from gate to gate and stops where a person must decide."""
    from flows.starting import start_run

    if until is not None:
        check_until(until, stages_of(project))
    workspace = start_run(project, run_id, rehearse)
    named_run = {"run": workspace.run, "project": workspace.project_dir.name}
    if rehearse is None:
        tell(_word(workspace, "started", **named_run))
    else:
        tell(_word(workspace, "rehearsal_started", share=f"{100 * rehearse:g}", **named_run))
    if detach:
        return _detach(workspace, as_json)
    return enter(workspace, until, as_json)


@app.command()
@guarded
def resume(
    run: RunArgument = None,
    project: ProjectOption = None,
    until: Until = None,
    anew: Annotated[
        bool,
        typer.Option(
            "--anew",
            help="Propose the stage that failed anew instead of running it again; at the first gate, take in "
            "project.yaml as it is now.",
        ),
    ] = False,
    take_over: Annotated[
        str,
        typer.Option(
            "--take-over",
            metavar="WHY",
            help="Take the run from a process on another host that is gone for good; why is recorded.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> int:
    """Go on after a decision, a stop, a crash or a reboot. What is done stays done."""
    from flows.cli.find import find_run

    found = find_run(run, project)
    check_until(until, stages_of(found.workspace))
    if anew:
        _take_in(found.workspace, found.ledger)
    return enter(found.workspace, until, as_json, anew, take_over)


def _take_in(workspace: Any, ledger: Any) -> None:
    """At the first gate, undecided: project.yaml as it is now, and a new round that shows what follows from it."""
    from flows.amending import amend, can_amend
    from flows.state import fold

    if can_amend(fold(ledger.events(workspace.run))):
        changes = amend(workspace, ledger)
        tell(f"project.yaml is taken in anew; changed: {', '.join(changes) or 'nothing, the sources are read again'}")


def stages_of(workspace: Any) -> tuple[str, ...]:
    """The stages of a run, or of a project before it runs (`workspace` is its folder)."""
    from flows.workspace import frozen_graph

    if isinstance(workspace, Path):
        from specs.loading import load_project

        return load_project(workspace).spec.graph.stages
    return frozen_graph(workspace.folder).stages


def check_until(until: str | None, stages: Sequence[str]) -> None:
    """Raises `InputError` for a stage that does not exist."""
    if until is not None and until not in stages:
        raise InputError(f"{until!r} is not a stage", f"stages are {', '.join(stages)}")


def enter(workspace: Any, until: str | None, as_json: bool, anew: bool = False, take_over: str = "") -> int:
    """Work on a run until it ends or waits; says how it stands and returns the exit code."""
    from flows.cli.asking import asker
    from flows.cli.progress import for_terminal
    from flows.session import Session
    from flows.starting import pass_through

    with for_terminal(of_run(workspace.folder)) as progress:
        ask = asker(workspace, progress)
        session = Session(progress=progress, until=until, anew=anew, ask=ask, take_over=take_over)
        pass_through(workspace, session)
    return _say_ending(workspace, session, as_json)


def _say_ending(workspace: Any, session: Any, as_json: bool) -> int:
    from flows.cli.find import Found, ledger_of_run
    from flows.cli.looking import status_of
    from flows.state import fold

    if session.error is not None and session.ending != "stopped":
        raise session.error
    if session.ending not in ENDINGS:
        raise GatewrightError(
            f"run {workspace.run} ended without saying why",
            f"details are in {workspace.log}; `gatewright resume {workspace.run}` tries again",
        )
    found = Found(workspace, ledger_of_run(workspace))
    state = fold(found.ledger.events(workspace.run))
    code = ENDINGS[session.ending]
    if as_json:
        emit({**status_of(found), "exit_code": code})
    elif session.ending in ("waiting", "waiting_blocked"):
        how_to_decide(state, workspace)
    elif session.ending == "finished":
        say(_finished(state, workspace))
    elif session.ending == "until":
        say(_word(workspace, "until", stage=session.until, run=workspace.run))
    elif session.ending == "rejected":
        say(_word(workspace, "rejected", run=workspace.run, project=shlex.quote(str(workspace.project_dir))))
    else:
        command = f"gatewright resume {workspace.run}{named(workspace)}"
        message = session.error.message if session.error else "stopped on request"
        message = STOPPED(of_run(workspace.folder), message)
        say(_word(workspace, "stopped", run=workspace.run, message=message, command=command))
    return code


def _word(workspace: Any, key: str, **values: object) -> str:
    return run_word(of_run(workspace.folder), key, **values)


def _finished(state: Any, workspace: Any) -> str:
    from flows.rehearsing import failed_stages, is_rehearsal

    if not is_rehearsal(state):
        folder = shlex.quote(str(workspace.release))
        card = _word(workspace, "read_card", card=workspace.release / "model_card.md", release=folder)
        return f"{_word(workspace, 'finished', run=workspace.run, release=workspace.release)}\n{card}"
    if failed := failed_stages(state):
        return _word(workspace, "rehearsal_failed", run=workspace.run, stages=", ".join(failed))
    return _word(workspace, "rehearsal_passed", run=workspace.run)


def how_to_decide(state: Any, workspace: Any) -> None:
    """Where the run waits, and in three lines how to approve."""
    for line in decision_lines(state, workspace, named(workspace)):
        say(line)


def named(workspace: Any) -> str:
    """` --project ...` where the current folder is not the project's; ready to paste behind a command."""
    from flows.cli.find import is_here

    return "" if is_here(workspace.project_dir) else f" --project {shlex.quote(str(workspace.project_dir))}"


def decision_lines(state: Any, workspace: Any, where: str) -> list[str]:
    """The lines of `how_to_decide`; `where` is appended to each command."""
    from flows.state import WaitForWork, next_steps

    work = [step for step in next_steps(state) if isinstance(step, WaitForWork)]
    lines = [line for step in work for line in _work_lines(step, workspace, where)]
    several = len(state.open_gates) > 1
    for gate in state.open_gates:
        named_gate = f"{where} --gate {gate.name}" if several else where
        lines += _gate_lines(state, gate, workspace, named_gate)
    command, number = f"gatewright resume {workspace.run}{where}", 3 if state.open_gates else 2
    return [*lines, _word(workspace, "go_on_at", number=number, command=command)]


def _work_lines(step: Any, workspace: Any, where: str) -> list[str]:
    """What a person is to do for a stage, and how it is handed in."""
    sheet = workspace.handed_out(step.stage, step.round).relative_to(workspace.project_dir)
    return [
        _word(workspace, "waits_for_work", run=workspace.run, stage=step.stage, sheet=sheet.as_posix()),
        _word(
            workspace,
            "hand_in",
            command=f"gatewright hand-in FILE {workspace.run} --stage {step.stage} --as WHO{where}",
        ),
    ]


def _gate_lines(state: Any, gate: Any, workspace: Any, where: str) -> list[str]:
    run, t = workspace.run, partial(run_word, of_run(workspace.folder))
    lines = [t("waits", run=run, gate=gate.name, round=gate.round), *_who(gate, workspace)]
    if gate.blocked:
        lines += [t("left_open", text=finding.text, sentence=finding.sentence) for finding in gate.findings]
        for verdict in [v for finished in state.all_finished(gate.name) for v in finished.verdicts or ()]:
            if verdict.outcome == "failed":
                value = t("not_measured") if verdict.value is None else f"{verdict.value:.6g}"
                bound = {"op": verdict.op, "bound": f"{verdict.bound:g}"}
                lines.append(t("failed", metric=verdict.metric, value=value, **bound))
    lines.append(t("look", command=f"gatewright review {run}{where}"))
    command, others = _deciding(state, gate, workspace, where)
    if gate.findings:
        lines.append(t("correct", command=f"gatewright resume {run}{where} --anew"))
        return [*lines, t("or_override", command=f'{command} --override -m "{t("why")}"')]
    lines.append(t("decide", command=command))
    if gate.blocked:
        lines.append(t("further_back"))
    return [*lines, t("or_as", people=", ".join(map(shlex.quote, others)))] if others else lines


def _who(gate: Any, workspace: Any) -> list[str]:
    """Who has approved and who is missing, where one person alone does not decide."""
    from flows.standing import sentence, waiting
    from flows.workspace import frozen_policy

    policy = frozen_policy(workspace)
    return (
        []
        if policy.solo and not policy.at(gate.name).expires_after_s
        else [f"  {sentence(waiting(policy, gate).document(), of_run(workspace.folder))}"]
    )


def _deciding(state: Any, gate: Any, workspace: Any, where: str) -> tuple[str, list[str]]:
    """The command of somebody whom the gate waits for, with what the policy asks of it; and who else may decide."""
    from flows.decide import DIGEST_DIGITS
    from flows.standing import waiting
    from flows.unseen import unseen
    from flows.workspace import frozen_policy
    from specs.rulings import overriders

    policy = frozen_policy(workspace)
    stands, rules = waiting(policy, gate), policy.at(gate.name)
    people = stands.waits_for or rules.reviewers
    if gate.findings:
        people = tuple(who for who in overriders(policy, rules) if who in people)
    who = next(iter(people), "WHO")
    gone = next((f for f in unseen(workspace, state) if (f.gate, f.round) == (gate.name, gate.round)), None)
    rework = (gate.blocked and not gate.findings) or not stands.waits_for or gone is not None
    command, why = ("rework", f' -m "{_word(workspace, "why_rework")}"') if rework else ("approve", "")
    if gone is not None:
        why = f' --stage {gone.stage} -m "{_word(workspace, "why_gone")}"'
    if gate.amendments and not rework:
        why += f" --digest {gate.digest[:DIGEST_DIGITS]}"
    if rules.authentication == "ssh_signature":
        why += " --sign default"
    return f"gatewright {command} {workspace.run}{where} --as {shlex.quote(who)}{why}", list(people[1:])


def _detach(workspace: Any, as_json: bool) -> int:
    from flows.starting import submit

    flow_run = submit(workspace)
    if as_json:
        emit({"run": workspace.run, "flow_run": flow_run, "project": str(workspace.project_dir)})
    else:
        say(_word(workspace, "with_worker", run=workspace.run))
    return EXIT_DONE


@app.command()
@guarded
def stop(run: RunArgument = None, project: ProjectOption = None, as_json: AsJson = False) -> int:
    """Ask the process that works on a run to save and stop."""
    from flows.cli.find import find_run
    from flows.starting import stop_holder

    found = find_run(run, project)
    holder = stop_holder(found.ledger, found.run)
    if as_json:
        emit({"run": found.run, "asked": holder})
    else:
        say(f"{holder} was asked to save and stop" if holder else f"nobody works on {found.run}")
    return EXIT_DONE


@app.command()
@guarded
def stage(
    stage: Annotated[str, typer.Argument(metavar="STAGE", help=f"One of {', '.join(STAGES)}, or added.")],
    project: ProjectArgument,
    run: Annotated[Optional[str], typer.Option("--run", help="Take the inputs from this run.")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> int:
    """Run one stage by itself. Marked ungated: it can never feed a gated run or a release."""
    from flows.cli.progress import for_terminal
    from flows.ungated import run_ungated

    check_until(stage, stages_of(project))
    with for_terminal(of_project(project)) as progress:
        folder, evidence = run_ungated(project, stage, run, progress)
    if as_json:
        emit({"folder": str(folder), "evidence": evidence.model_dump(mode="json")})
    else:
        say(f"{stage} (ungated): {folder / 'report.html'}")
    return EXIT_WAITING_FAILED_CRITERION if blocked(evidence.verdicts) else EXIT_DONE


@app.command()
@guarded
def up(
    port: Annotated[int, typer.Option(help="Preferred port on 127.0.0.1.")] = 4200,
    worker: Annotated[bool, typer.Option("--worker", help="Also start a worker for detached runs.")] = False,
    as_json: AsJson = False,
) -> int:
    """Start the Prefect server of this user in the background."""
    from flows import server

    running = server.up(port, tick=_tick("starting the Prefect server"))
    pid = None
    if worker:
        from flows.starting import deploy as deploy_flow

        deploy_flow()
        pid = server.start_worker("gatewright")
    if as_json:
        emit({"api_url": running.api_url, "pid": running.pid, "worker_pid": pid})
    else:
        say(f"Prefect answers at {running.api_url.removesuffix('/api')} (process {running.pid})")
        if pid:
            say(f"a worker waits for detached runs (process {pid})")
    return EXIT_DONE


@app.command()
@guarded
def down(as_json: AsJson = False) -> int:
    """Stop the Prefect server and worker of this user."""
    from flows import server

    stopped = server.down()
    if as_json:
        emit({"stopped": stopped})
    else:
        say(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")
    return EXIT_DONE


@app.command()
@guarded
def deploy(as_json: AsJson = False) -> int:
    """Register the flow with a work pool, so that `gatewright run --detach` hands runs to workers."""
    from flows.starting import deploy as deploy_flow

    name = deploy_flow()
    if as_json:
        emit({"deployment": name, "work_pool": "gatewright"})
    else:
        say(f"deployment {name}; start a worker with: gatewright up --worker")
    return EXIT_DONE


def _tick(what: str) -> Any:
    last = [-10.0]

    def tick(waited_s: float) -> None:
        if waited_s - last[0] >= 5:
            last[0] = waited_s
            tell(f"  {what} ({waited_s:.0f} s)")

    return tick
