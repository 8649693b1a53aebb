"""Many processes approve one gate that several people must approve; some reject it, and for some its time is over."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.audit import verify
from flows.decide import decide
from flows.expiring import expire_if_due
from flows.ledger import Ledger
from flows.ledgers import ledger_of_run
from flows.workspace import Workspace
from specs.errors import Refused
from tests.support.contest import Url, meet, opened, waiting

PEOPLE, QUORUM = 10, 4
NOTHING = "nothing was due"


@dataclass(frozen=True)
class Outcome:
    """One round: the kinds of closing records, who approved how often, what the last one says, and what is wrong."""

    closing: list[str]
    approvals: Counter[str]
    approved_by: list[str]
    answers: int
    faults: list[str]

    def as_promised(self, processes: int) -> bool:
        """Closed at most once, nobody counted twice, no approval past the quorum, everybody answered, audit green."""
        by_approval = bool(self.approved_by)
        return (
            len(self.closing) <= 1
            and all(count == 1 for count in self.approvals.values())
            and len(self.approvals) <= QUORUM
            and (not by_approval or (len(set(self.approved_by)) == QUORUM == len(self.approvals)))
            and self.answers == processes
            and self.faults == []
        )


def prepare(folder: Path, rounds: int, url: Url = lambda number: None) -> list[Workspace]:
    """Light projects at their first gate. The light parts must be in place."""
    people = ", ".join(f"{{id: p{n}}}" for n in range(PEOPLE))
    policy = f"policy: {{solo: false, approvers: [{people}], quorum: {QUORUM}, expires_after: 1d}}\n"
    return waiting(folder, rounds, policy, url)


def contest(workspaces: list[Workspace], processes: int) -> list[Outcome]:
    """Processes that meet at a barrier before each gate. Every tenth comes when time is over."""
    said = meet(processes, lambda number, barrier: _one(workspaces, barrier, number))
    return [_outcome(w, sum(bool(one[i]) for one in said)) for i, w in enumerate(workspaces)]


def _one(workspaces: list[Workspace], barrier: Any, number: int) -> list[str]:
    said = []
    for position, workspace in enumerate(workspaces):
        kind = _kind(number, position)
        ledger = opened(workspace, past=kind == "expire")
        barrier.wait(120)
        people = min(PEOPLE, max(QUORUM, barrier.parties - 2))  # fewer than processes: some ask twice
        said.append(_answer(workspace, ledger, kind, f"p{number % people}"))
        ledger.close()
    return said


def _kind(number: int, position: int) -> str:
    """Two rounds of three hold nothing but approvals, so that most are closed by a quorum."""
    if position % 3 == 2 and number % PEOPLE == 0:
        return "expire" if number % (2 * PEOPLE) else "reject"
    return "approve"


def _answer(workspace: Workspace, ledger: Ledger, kind: str, who: str) -> str:
    try:
        if kind == "expire":
            return "expired" if expire_if_due(ledger, workspace.run, workspace.folder) else NOTHING
        event = decide(
            ledger,
            workspace.run,
            choice=kind,
            actor=who,
            authentication="terminal",
            run_dir=workspace.folder,
            guard=lambda proposal: None,
            comment="seen",
        )
        return event.kind
    except Refused as error:
        return error.message


def _outcome(workspace: Workspace, answers: int) -> Outcome:
    ledger = ledger_of_run(workspace)
    events = ledger.events(workspace.run)
    closing = [e for e in events if e.kind in ("decision.recorded", "gate.expired")]
    said = [e for e in events if e.kind in ("decision.recorded", "approval.recorded")]
    approvals = Counter(e.actor for e in said if e.payload["decision"]["choice"] == "approve")
    approved_by = next((e.payload["approved_by"] for e in closing if e.kind == "decision.recorded"), [])
    report = verify(ledger, workspace.run, workspace.folder)
    faults = [step.detail for part in report.parts.values() for step in part.steps if not step.ok]
    ledger.close()
    return Outcome([e.kind for e in closing], approvals, approved_by, answers, faults)
