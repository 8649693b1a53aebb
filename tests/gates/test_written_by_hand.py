"""What somebody writes into the database by hand opens no gate: the run does not move, and nobody decides on top."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from flows.ledger import Ledger
from flows.ledger.engine import writing
from flows.ledgers import ledger_of_run
from flows.state import fold
from flows.workspace import Workspace
from specs.decisions import Decision
from specs.errors import Refused
from specs.events import ApprovalRecorded
from tests.support import light_run

pytestmark = pytest.mark.usefixtures("light_stages")

Forge = Callable[[Ledger, Decision], Any]


def approval(ledger: Ledger, **more: Any) -> Decision:
    gate = fold(ledger.events("r1")).gate
    assert gate is not None
    said = {"choice": "approve", "actor": "li", "authentication": "token", "credential": "0badcafe", **more}
    return Decision(run="r1", gate=gate.name, round=gate.round, digest=gate.digest, **said)


def kinds(ledger: Ledger) -> list[str]:
    return [event.kind for event in ledger.events("r1")]


def without_triggers(connection: Connection) -> None:
    names = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all()
    for name in names:
        connection.execute(text(f'DROP TRIGGER "{name}"'))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "1 of 2 had approved"),
        ({"actor": "mallory"}, "'mallory' is not an approver"),
        ({"actor": "agent"}, "the agent cannot decide"),
        ({"authentication": "unauthenticated", "credential": ""}, "is a claim"),
        ({"signature": "none"}, "it is signed, and says token"),
    ],
)
def test_a_decision_put_into_the_ledger_runs_nothing(waiting: Workspace, more: dict[str, Any], words: str):
    ledger = ledger_of_run(waiting)
    forged = approval(ledger, **more)
    ledger.record_decision(forged, forged.actor)
    session = light_run.passage(waiting)
    assert isinstance(session.error, Refused)
    assert words in session.error.message
    assert "attempt.reserved" not in kinds(ledger)


def test_nobody_completes_a_quorum_with_an_approval_that_was_put_there(waiting: Workspace):
    ledger = ledger_of_run(waiting)
    forged = approval(ledger, actor="mallory")
    ledger.append("r1", ApprovalRecorded(decision=forged, approved_by=["mallory"], quorum=2), "mallory")
    with pytest.raises(Refused, match="'mallory' is not an approver"):
        light_run.decide(waiting, actor="wang")
    light_run.decide(waiting, "reject", actor="wang")
    assert light_run.passage(waiting).ending == "rejected"


def test_a_reject_that_was_turned_into_an_approval_runs_nothing(tmp_path: Path):
    workspace = light_run.begin(light_run.make_project(tmp_path / "demo"))
    light_run.passage(workspace)
    light_run.decide(workspace, "reject")
    ledger = ledger_of_run(workspace)
    with writing(ledger.engine) as connection:
        without_triggers(connection)
        turned = 'CAST(replace(CAST(body AS TEXT), \'"choice":"reject"\', \'"choice":"approve"\') AS BLOB)'
        connection.execute(text(f"UPDATE events SET body = {turned} WHERE kind = 'decision.recorded'"))
        connection.execute(text("UPDATE runs SET state = 'decided', open = 1, terminal = 0"))
    session = light_run.passage(workspace)
    assert isinstance(session.error, Refused)
    assert "do not hash to the recorded hash" in session.error.message
    assert "attempt.reserved" not in kinds(ledger)
