"""A light run in which everything happens that a run can write: to be killed at each of these writes.

The spec is amended at the first gate; a command runs beside a stage that a person completes; a gate is sent back, one
is approved with edits, one by a quorum.
"""

from __future__ import annotations

from pathlib import Path

from flows.amending import amend
from flows.handing import hand_in
from flows.ledgers import ledger_of_run
from flows.run_state import Gate
from flows.session import Session
from flows.state import fold
from flows.steps import waits_for_work
from flows.workspace import Workspace
from tests.support import light_run
from tests.support.added_project import COUNT, STAGES

ORDERED = False
POLICY = "policy: {solo: false, approvers: [{id: me}, {id: you}], gates: {stress_test: {quorum: 2}}}"
GOAL = "goal: repair spindles\n"


def make_project(folder: Path, name: str, ledger: str | None = None) -> Path:
    """A project folder whose spec loads."""
    project = light_run.make_project(folder, name, ledger, POLICY + STAGES)
    (project / "count.py").write_text(COUNT)
    return project


def complete(project: Path, run: str) -> Session:
    """Go on to the end of the run; what was done before a crash is not done again."""
    workspace = light_run.begin(project, run)
    while True:
        events = ledger_of_run(workspace).events(run)
        state = fold(events)
        if state.terminal:
            return Session(ending="finished" if state.state == "finished" else "rejected")
        if state.open_gates:
            if state.open_gates[0].name == "data" and "spec.amended" not in {event.kind for event in events}:
                _amend(workspace)
            else:
                _decide(workspace, state.open_gates[0])
        elif "look" in waits_for_work(state) and not state.handed_in:  # it could be handed in again until it is taken
            _hand_in(workspace)
        if not state.open_gates:
            session = light_run.passage(workspace)
            if session.ending != "waiting":
                return session


def _amend(workspace: Workspace) -> None:
    """Give the spec a goal, once, and take it in."""
    spec = workspace.project_dir / "project.yaml"
    spec.write_text(spec.read_text().removesuffix(GOAL) + GOAL)
    amend(workspace, ledger_of_run(workspace))


def _hand_in(workspace: Workspace) -> None:
    file = workspace.project_dir / "filled.csv"
    file.write_text("all is good\n")
    hand_in(workspace, ledger_of_run(workspace), file, "me", authentication="terminal")


def _decide(workspace: Workspace, gate: Gate) -> None:
    """The next decision on an open gate."""
    if gate.name == "dry_run" and gate.round == 1:
        light_run.decide(workspace, "rework", name=gate.name, comment="take another seed")
    elif gate.name == "count" and not gate.amendments:
        light_run.decide(workspace, name=gate.name, edits={"times": 3})
    else:
        actor = "you" if gate.amendments or gate.approvals else "me"
        light_run.decide(workspace, actor=actor, name=gate.name, expected_digest=gate.digest)
