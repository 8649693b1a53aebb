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


def prepare(folder: Path, rounds: int, url: Callable[[int], str | None] = lambda number: None) -> list[Workspace]:
    """Light projects at their first gate, which expires after a day. The light parts must be in place."""
    found = []
    for number in range(rounds):
        name = f"p{number}"
        policy = "policy: {solo: true, approvers: [{id: me}], expires_after: 1d}\n"
        project = light_run.make_project(folder / name, name=name, ledger=url(number), more=policy)
        workspace = light_run.begin(project, f"r{number}")
        assert light_run.passage(workspace).ending == "waiting"
        found.append(workspace)
    return found


def contest(workspaces: list[Workspace], processes: int) -> list[Result]:
    """Start the processes once; they meet at a barrier before each gate."""
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(processes), context.Queue()
    team = [
        context.Process(target=_contender, args=(workspaces, barrier, number, answers)) for number in range(processes)
    ]
    for process in team:
        process.start()
    said = dict(answers.get(timeout=600) for _ in team)
    for process in team:
        process.join()
    return [_result(w, [said[n][i] for n in range(processes)]) for i, w in enumerate(workspaces)]


def _contender(workspaces: list[Workspace], barrier: Any, number: int, answers: Any) -> None:
    kind, said = KINDS[number % len(KINDS)], []
    for workspace in workspaces:
        ledger = _opened(workspace, past=kind == "expire")
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
    answers.put((number, said))


def _opened(workspace: Workspace, past: bool) -> Ledger:
    """The ledger, under a clock at which the gate has just opened, or has long expired: no round waits for a day."""
    url = ledger_url(workspace.project_dir, load_project(workspace.project_dir).spec)
    opened = Ledger.open(url)
    gate = fold(opened.events(workspace.run)).gate
    opened.close()
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
