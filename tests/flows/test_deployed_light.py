"""Runs that a worker holds: suspended at gates, resumed by a decision, recovered when the worker dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from flows.ledger import Ledger
from flows.ledgers import ledger_of_run
from flows.state import fold
from flows.workspace import Workspace
from tests.support import light_run

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]

SUBMIT = """
import sys
from pathlib import Path
from flows import prefect_bridge, server
from tests.support import light_run
light_run.install()
workspace = light_run.begin(Path(sys.argv[1]))
prefect_bridge.connect()
prefect_bridge.deploy("tests/support/light_flow.py:project_run", sys.argv[2])
server.start_worker(prefect_bridge.WORK_POOL)
prefect_bridge.submit({"project_dir": sys.argv[1], "run": workspace.run}, workspace.run)
"""
RESUME = """
import sys
from pathlib import Path
from flows.session import Session
from flows.starting import pass_through
from flows.workspace import Workspace
from tests.support import light_run
light_run.install()
session = Session()
pass_through(Workspace(Path(sys.argv[1]), "r1"), session)
print(session.ending, session.error and session.error.message)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home with a server and a worker of its own, stopped at the end."""
    from flows import server

    monkeypatch.setenv("GATEWRIGHT_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"
    server.down()


def python(code: str, *words: str) -> str:
    """Run code in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def until(what: Callable[[], Any], timeout_s: float = 240) -> Any:
    """Wait until something is true, and return it."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")


def state_in_prefect(ledger: Ledger) -> str:
    """The state that Prefect has for the run."""
    from flows import doorbell, server

    running = server.running()
    assert running is not None
    flow_run = fold(ledger.events("r1")).flow_run
    return str(doorbell._call(running.api_url, "GET", f"/flow_runs/{flow_run}")["state"]["type"])


def test_a_worker_suspends_goes_on_after_a_decision_and_is_recovered_when_it_dies(home: Path, tmp_path: Path):
    project = light_run.make_project(tmp_path / "p")
    workspace = Workspace(project, "r1")
    python(SUBMIT, str(project), str(ROOT))
    ledger = ledger_of_run(workspace)

    def waits_at(gate: str) -> bool:
        state = fold(ledger.events("r1"))
        return state.state == "waiting" and state.gate is not None and state.gate.name == gate

    until(lambda: waits_at("data"))
    until(lambda: ledger.lease_holder("r1") is None)  # the process is gone while a person thinks
    light_run.decide(workspace)  # perhaps before Prefect knows that the run is suspended: nobody may be told, yet
    until(lambda: waits_at("dry_run"))
    events = ledger.events("r1")
    at = {kind: [e.at for e in events if e.kind == kind][-1] for kind in ("decision.recorded", "lease.taken")}
    taken: datetime = at["lease.taken"]
    print(f"decision to resume: {(taken - at['decision.recorded']).total_seconds():.1f} s")  # noqa: T201

    (project / "hold").write_text("")
    until(lambda: ledger.lease_holder("r1") is None)
    until(lambda: state_in_prefect(ledger) == "PAUSED")
    assert light_run.decide(workspace)["worker_told"]
    until(lambda: (project / "hold").read_text())
    worker = json.loads((home / "prefect" / "gatewright-worker.json").read_bytes())["pid"]
    for pid in (worker, int((project / "hold").read_text())):
        os.kill(pid, signal.SIGKILL)
    (project / "hold").unlink()
    assert python(RESUME, str(project)).split()[0] == "waiting"
    assert waits_at("stress_test")
    kinds = [e.kind for e in ledger.events("r1")]
    assert kinds.count("decision.recorded") == 2
    assert "attempt.abandoned" in kinds
    assert [e.payload["taken_over_from"] for e in ledger.events("r1") if e.kind == "lease.taken"][-1]
