"""A Prefect server that goes away costs its pictures, never the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
from email.message import Message
from pathlib import Path

import httpx
import pytest

from flows.engine import at_work
from flows.ledgers import ledger_of_run
from flows.passage import drive, perform
from flows.session import Session, open_session
from flows.steps import NextStep, place_of
from flows.workspace import Workspace
from tests.support import light_run

pytestmark = pytest.mark.usefixtures("light_stages")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("done", [False, True], ids=["before the step", "after the step"])
def test_a_step_under_a_server_that_goes_away_is_done_exactly_once_and_the_loss_is_recorded(tmp_path, done):
    from flows.pipeline import PrefectMirror

    class Dying(PrefectMirror):
        tried = 0

        def _as_task(self, step: NextStep) -> None:
            self.tried += 1
            if done:
                perform(engine, type(step), place_of(step))
            raise httpx.ConnectError("[Errno 111] Connection refused")

    workspace = light_run.begin(light_run.make_project(tmp_path / "p"))
    session, mirror = Session(), Dying("r1")
    open_session("r1", session)
    with at_work(workspace.project_dir, "r1") as engine:
        drive(engine, mirror)
    assert (session.ending, session.error, mirror.tried) == ("waiting", None, 1)
    kinds = [e.kind for e in ledger_of_run(workspace).events("r1")]
    assert kinds.count("proposal.made") == kinds.count("gate.opened") == kinds.count("fallback.taken") == 1


def test_an_error_that_is_none_of_the_connection_is_not_taken_for_a_lost_server():
    from flows.prefect_bridge import is_lost

    wrapped = RuntimeError("crashed")
    wrapped.__cause__ = httpx.ReadTimeout("slow")
    assert is_lost(wrapped)
    assert not is_lost(ValueError("a bug of ours"))
    request = httpx.Request("GET", "http://127.0.0.1")
    for status, lost in ((503, True), (404, False)):
        error = httpx.HTTPStatusError("x", request=request, response=httpx.Response(status, request=request))
        assert is_lost(error) is lost


PASSAGE = """
import json, os, sys
from email.message import Message
from pathlib import Path
import psutil
from tests.support import light_run
light_run.install()
from flows import server
from flows.session import Session
from flows.starting import pass_through
workspace = light_run.begin(Path(sys.argv[1]))
def kill_server(context):
    family = psutil.Process(server.running().pid)
    for member in [*family.children(recursive=True), family]:
        member.kill()
if sys.argv[2] == "kill":
    light_run.HOW["while_running"] = kill_server
session = Session()
pass_through(workspace, session)
print(json.dumps([session.ending, session.error and session.error.message]))
"""


def test_a_call_that_nobody_else_will_make_is_made_until_the_server_answers_it():
    from flows.prefect_bridge import persistently

    answer = httpx.Response(500, request=httpx.Request("POST", "http://127.0.0.1/resume"))
    busy = httpx.HTTPStatusError("database is locked", request=answer.request, response=answer)
    tries: list[Exception | None] = [busy, busy, None]

    def call() -> None:
        if (error := tries.pop(0)) is not None:
            raise error

    persistently(call, waits_s=(0, 0, 0))
    assert tries == []
    tries = [busy, busy]
    with pytest.raises(httpx.HTTPStatusError):
        persistently(call, waits_s=(0,))
    tries = [ValueError("ours"), None]
    with pytest.raises(ValueError, match="ours"):
        persistently(call, waits_s=(0, 0))


@pytest.mark.slow
def test_a_server_killed_in_the_middle_of_a_stage_does_not_hold_the_run_up(tmp_path):
    project = light_run.make_project(tmp_path / "p")
    home = tmp_path / "home"

    def passage(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", PASSAGE, str(project), *words],
            cwd=ROOT,
            env={**os.environ, "GATEWRIGHT_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=240,
        )

    try:
        first = passage("go")
        assert json.loads(first.stdout) == ["waiting", None], first.stderr
        light_run.decide(Workspace(project, "r1"))
        second = passage("kill")
        assert json.loads(second.stdout) == ["waiting", None], second.stderr
        assert "Traceback" not in second.stderr
        light_run.decide(Workspace(project, "r1"))
        third = passage("go")  # a new server is started, and the run is mirrored again
        assert json.loads(third.stdout) == ["waiting", None], third.stderr
        events = ledger_of_run(Workspace(project, "r1")).events("r1")
        assert [e.kind for e in events].count("fallback.taken") == 1
        assert events[-1].kind == "gate.opened"
    finally:
        for record in home.rglob("gatewright-server.json"):
            os.kill(json.loads(record.read_bytes())["pid"], signal.SIGTERM)


def test_the_doorbell_rings_again_at_a_busy_server_and_once_at_one_that_is_gone(monkeypatch):
    from types import SimpleNamespace

    from flows import doorbell, server
    from flows.state import RunState

    monkeypatch.setattr(server, "running", lambda: SimpleNamespace(api_url="http://127.0.0.1:1/api"))
    monkeypatch.setattr(doorbell, "AGAIN_AFTER_S", (0.0, 0.0))
    paused = {"deployment_id": "d", "state": {"type": "PAUSED"}}
    answers: list[dict[str, object] | Exception] = []

    def call(api_url: str, method: str, path: str, body: object = None) -> dict[str, object]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(doorbell, "_call", call)
    locked = urllib.error.HTTPError("http://x", 500, "database is locked", Message(), None)
    state = RunState(flow_runs=["f"])
    for given, rung in (
        ([paused, locked, paused, {"status": "ACCEPT"}], True),
        ([TimeoutError(), paused, {"status": "ACCEPT"}], True),
        ([urllib.error.URLError(TimeoutError()), locked, locked], False),
        ([urllib.error.URLError(ConnectionRefusedError())], False),
        ([{"deployment_id": "d", "state": {"type": "RUNNING"}}], False),
    ):
        answers[:] = given
        assert doorbell.ring(state) is rung
        assert answers == []


def test_a_deployed_run_is_suspended_also_by_a_server_that_answers_late(monkeypatch):
    from prefect.exceptions import Pause

    from flows import prefect_bridge, retrying

    asked, request = [], httpx.Request("POST", "http://127.0.0.1")

    def suspend(timeout: int | None, key: str) -> None:
        asked.append(key)
        if len(asked) < 3:
            answer = httpx.Response(503, request=request)
            raise httpx.HTTPStatusError("database is locked", request=request, response=answer)
        raise Pause()

    monkeypatch.setattr("prefect.suspend_flow_run", suspend)
    monkeypatch.setattr(prefect_bridge, "current_flow_run", lambda: ("00000000-0000-0000-0000-000000000000", True))
    monkeypatch.setattr(retrying.time, "sleep", lambda seconds: None)
    with pytest.raises(Pause):
        prefect_bridge.leave("gate-data-1", "waits")
    assert len(asked) == 3
    assert len(set(asked)) == 1, "asked again under another key, the run would be suspended a second time"
