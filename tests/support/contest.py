"""Many processes decide on one gate at the same moment, by the code that people's commands use; time decides too."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from flows.decide import decide
from flows.expiring import expire_if_due
from flows.ledger import Ledger
from flows.ledger.chain import verify_chain
from flows.state import fold
from flows.workspace import Workspace, ledger_url
from specs.errors import Refused
from specs.loading import load_project
from tests.support import light_run

WON, NOTHING_DUE = "won", "nothing was due"
KINDS = ("approve", "reject", "expire")


@dataclass(frozen=True)
class Result:
    """One round: how the gate was closed, how often, how many were told so, and whether the chain is whole."""

    closed_by: str
    records: int
    winners: int
    clear: int
    intact: bool

    def as_promised(self, processes: int) -> bool:
        """Exactly one record, one winner, and a clear answer for everybody else."""
        return (self.records, self.winners, self.clear, self.intact) == (1, 1, processes - 1, True)


Url = Callable[[int], str | None]
"""The ledger of a round; null: the project's own."""


def prepare(folder: Path, rounds: int, url: Url = lambda number: None) -> list[Workspace]:
    """Light projects at their first gate, which expires after a day. The light parts must be in place."""
    return waiting(folder, rounds, "policy: {solo: true, approvers: [{id: me}], expires_after: 1d}\n", url)


def waiting(folder: Path, rounds: int, policy: str, url: Url) -> list[Workspace]:
    """A project with this policy for each round, its run at the first gate."""
    found = []
    for number in range(rounds):
        name = f"p{number}"
        project = light_run.make_project(folder / name, name=name, ledger=url(number), more=policy)
        workspace = light_run.begin(project, f"r{number}")
        assert light_run.passage(workspace).ending == "waiting"
        found.append(workspace)
    return found


def contest(workspaces: list[Workspace], processes: int) -> list[Result]:
    """Processes that meet at a barrier before each gate, one gate after the other."""
    said = meet(processes, lambda number, barrier: _contender(workspaces, barrier, number))
    return [_result(w, [one[i] for one in said]) for i, w in enumerate(workspaces)]


def meet(processes: int, contender: Callable[[int, Any], list[str]]) -> list[list[str]]:
    """Start `contender(number, barrier)` once in each of the processes; what each of them answered, by number."""
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(processes), context.Queue()
    team = [
        context.Process(target=lambda number=number: answers.put((number, contender(number, barrier))))
        for number in range(processes)
    ]
    for process in team:
        process.start()
    said = dict(answers.get(timeout=600) for _ in team)
    for process in team:
        process.join()
    return [said[number] for number in range(processes)]


def _contender(workspaces: list[Workspace], barrier: Any, number: int) -> list[str]:
    kind, said = KINDS[number % len(KINDS)], []
    for workspace in workspaces:
        ledger = opened(workspace, past=kind == "expire")
        barrier.wait(120)
        try:
            if kind == "expire":
                said.append(WON if expire_if_due(ledger, workspace.run, workspace.folder) else NOTHING_DUE)
            else:
                decide(
                    ledger,
                    workspace.run,
                    choice=kind,
                    actor="me",
                    authentication="terminal",
                    run_dir=workspace.folder,
                    guard=lambda proposal: None,
                    comment=f"by process {number}",
                )
                said.append(WON)
        except Refused as error:
            said.append(error.message)
        ledger.close()
    return said


def opened(workspace: Workspace, past: bool) -> Ledger:
    """The ledger, under a clock at which the gate has just opened, or has long expired: no round waits for a day."""
    url = ledger_url(workspace.project_dir, load_project(workspace.project_dir).spec)
    ledger = Ledger.open(url)
    gate = fold(ledger.events(workspace.run)).gate
    ledger.close()
    assert gate is not None
    at = gate.opened_at + (timedelta(days=2) if past else timedelta(seconds=1))
    return Ledger.open(url, clock=lambda: at)


def _result(workspace: Workspace, said: list[str]) -> Result:
    ledger = Ledger.open(ledger_url(workspace.project_dir, load_project(workspace.project_dir).spec))
    events = ledger.events(workspace.run)
    closing = [e for e in events if e.kind in ("decision.recorded", "gate.expired")]
    choice = closing[0].payload["decision"]["choice"] if closing[0].kind == "decision.recorded" else "expire"
    told = (
        ("expired at",) if choice == "expire" else (f"decided already: {choice} by me", f"decision was {choice} by me")
    )
    clear = sum(text == NOTHING_DUE or any(words in text for words in told) for text in said)
    intact = not verify_chain(workspace.run, ledger.stored(workspace.run))
    ledger.close()
    return Result(choice, len(closing), said.count(WON), clear, intact)
