"""What failed decisions, backups and background processes leave behind opens no gate and is found."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flows import cleaning
from flows.audit import verify
from flows.backup import back_up, restore
from flows.ledgers import ledger_of_run
from flows.server import _start_in_background
from flows.tokens import VARIABLE, new_token, revoke_token, tokens_of
from flows.workspace import Workspace, frozen_policy
from specs.errors import InputError
from specs.loading import load_project
from tests.support import light_run

pytestmark = pytest.mark.usefixtures("light_stages")


def found(workspace: Workspace, age: timedelta = timedelta()) -> list[cleaning.Candidate]:
    spec = load_project(workspace.project_dir).spec
    return cleaning.find_garbage(workspace.project_dir, spec, datetime.now(UTC), age).candidates


def test_a_proposal_of_an_edit_that_was_never_recorded_is_found_when_no_decision_can_be_in_flight(
    waiting: Workspace, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("flows.guarding.guard_of", lambda workspace, ledger, proposal: None)
    proposals = waiting.folder / "proposals"
    before = set(proposals.iterdir())
    with pytest.raises(InputError, match="no key"):
        light_run.decide(waiting, actor="li", edits={"seed": "7"}, key="/nowhere/key")
    (left,) = set(proposals.iterdir()) - before
    light_run.decide(waiting, actor="li", edits={"seed": "8"})
    assert found(waiting) == []
    long_ago = datetime.now(UTC).timestamp() - 2 * cleaning.IN_FLIGHT.total_seconds()
    for path in waiting.folder.rglob("*.json"):
        os.utime(path, (long_ago, long_ago))
    candidates = found(waiting)
    assert [(c.path, c.rule) for c in candidates] == [(f"runs/r1/proposals/{left.name}", cleaning.UNNAMED)]
    cleaning.delete(waiting.project_dir, load_project(waiting.project_dir).spec, candidates, "li")
    assert not left.exists()
    assert found(waiting) == []
    assert verify(ledger_of_run(waiting), "r1", waiting.folder).ok


def test_a_token_that_was_revoked_does_not_come_back_with_a_backup(waiting: Workspace, tmp_path: Path):
    project = waiting.project_dir
    new_token(project, frozen_policy(waiting), "li", 3600)
    back_up(project, load_project(project).spec, tmp_path / "copy.tar")
    revoke_token(project, tokens_of(project)[0].id)
    restore(tmp_path / "copy.tar", tmp_path / "again")
    assert tokens_of(tmp_path / "again") == []
    assert (tmp_path / "again" / "runs" / "r1" / "policy.json").is_file()


def test_no_process_in_the_background_holds_a_persons_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv(VARIABLE, "gwt_12345678_secret")
    monkeypatch.setenv("GATEWRIGHT_HOME", "/somewhere")
    command = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    with (tmp_path / "log").open("ab") as log:
        assert _start_in_background(command, {"PREFECT_HOME": "/its"}, log.fileno()).wait(60) == 0
    seen = json.loads((tmp_path / "log").read_bytes())
    assert VARIABLE not in seen
    assert (seen["GATEWRIGHT_HOME"], seen["PREFECT_HOME"]) == ("/somewhere", "/its")
