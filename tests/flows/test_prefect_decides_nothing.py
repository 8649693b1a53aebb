"""What somebody does to the flow run in Prefect's own page opens no gate, and loses no decision."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows import doorbell, server
from flows.ledgers import ledger_of_run
from flows.state import fold
from flows.workspace import Workspace
from tests.flows.test_deployed_light import RESUME, ROOT, SUBMIT, home, python, state_in_prefect, until
from tests.support import light_run

pytestmark = pytest.mark.slow
__all__ = ["home"]


def test_resuming_and_completing_the_flow_run_by_hand_leaves_the_gate_as_it_is(home: Path, tmp_path: Path):
    project = light_run.make_project(tmp_path / "p")
    workspace = Workspace(project, "r1")
    python(SUBMIT, str(project), str(ROOT))
    ledger = ledger_of_run(workspace)

    def kinds() -> list[str]:
        return [event.kind for event in ledger.events("r1")]

    def call(path: str, body: dict[str, object]) -> None:
        running = server.running()
        assert running is not None
        flow_run = fold(ledger.events("r1")).flow_run
        doorbell._call(running.api_url, "POST", f"/flow_runs/{flow_run}/{path}", body)

    until(lambda: "gate.opened" in kinds())
    until(lambda: state_in_prefect(ledger) == "PAUSED")
    entered = kinds().count("lease.taken")
    call("resume", {"run_input": {"choice": "approve", "actor": "me"}})
    until(lambda: kinds().count("lease.taken") > entered)
    until(lambda: state_in_prefect(ledger) == "PAUSED")
    assert not {"decision.recorded", "attempt.reserved"} & set(kinds())
    call("set_state", {"state": {"type": "COMPLETED"}, "force": True})
    assert fold(ledger.events("r1")).state == "waiting"
    light_run.decide(workspace)
    assert python(RESUME, str(project)).split()[0] == "waiting"
    gate = fold(ledger.events("r1")).gate
    assert gate is not None
    assert gate.name == "dry_run"
