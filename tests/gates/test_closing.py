"""Closing a run outside a gate asks for the same proof as deciding at the gate that it was heading for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flows.audit import verify
from flows.closing import close_run
from flows.ledgers import ledger_of_run
from flows.tokens import new_token
from flows.workspace import Workspace, frozen_policy
from specs.errors import PolicyRefused, SignatureRefused
from specs.events import RunClosed
from tests.support import light_run

pytestmark = pytest.mark.usefixtures("light_stages")

NO_PROOF = "closing needs {}, as gate data does, and this is unauthenticated"


def failing(folder: Path, policy: str, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A run that fails before its first gate, whose policy is `policy`."""
    workspace = light_run.begin(light_run.make_project(folder, more=f"policy: {{solo: false, {policy}}}\n"))
    monkeypatch.setattr(light_run.Proposer, "consider", lambda self, context: 1 / 0)
    assert light_run.passage(workspace).ending == "failed"
    return workspace


def faults(workspace: Workspace) -> list[str]:
    report = verify(ledger_of_run(workspace), workspace.run, workspace.folder)
    return [step.detail for part in report.parts.values() for step in part.steps if not step.ok]


def test_a_name_alone_closes_nothing_where_a_token_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    team = "approvers: [{id: li}, {id: wang}], gates: {data: {authentication: token}}"
    workspace = failing(tmp_path / "p", team, monkeypatch)
    ledger = ledger_of_run(workspace)
    with pytest.raises(PolicyRefused, match=NO_PROOF.format("token")):
        close_run(workspace, ledger, "li", "it only fails")
    token = new_token(workspace.project_dir, frozen_policy(workspace), "wang", 3600)
    with pytest.raises(PolicyRefused, match="is of 'wang'"):
        close_run(workspace, ledger, "li", "it only fails", token=token)
    assert "run.closed" not in [e.kind for e in ledger.events("r1")]
    closed = close_run(workspace, ledger, "wang", "it only fails", token=token)
    assert (closed.payload["authentication"], len(closed.payload["credential"])) == ("token", 8)
    assert faults(workspace) == []


def test_a_closing_put_into_the_ledger_without_its_proof_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    workspace = failing(tmp_path / "p", "approvers: [{id: li}, {id: wang}], authentication: token", monkeypatch)
    ledger = ledger_of_run(workspace)
    ledger.append("r1", RunClosed(reason="no", authentication="unauthenticated"), "li")
    assert [fault for fault in faults(workspace) if "it needed token, and is unauthenticated" in fault]


def test_a_signed_closing_verifies_and_holds_for_its_run_and_words_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    keys = {}
    for name in ("li", "stranger"):
        keys[name] = tmp_path / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys[name]], check=True)
    public = " ".join(keys["li"].with_suffix(".pub").read_text().split()[:2])
    signing = f"approvers: [{{id: li, keys: ['{public}']}}], authentication: ssh_signature"
    workspace = failing(tmp_path / "p", signing, monkeypatch)
    ledger = ledger_of_run(workspace)
    with pytest.raises(SignatureRefused):
        close_run(workspace, ledger, "li", "it only fails", key=str(keys["stranger"]))
    closed = close_run(workspace, ledger, "li", "it only fails", key=str(keys["li"]))
    assert closed.payload["authentication"] == "ssh_signature"
    assert faults(workspace) == []
    other = failing(tmp_path / "q", signing, monkeypatch)
    other_words = RunClosed.model_validate({**closed.payload, "reason": "another reason"})
    ledger_of_run(other).append("r1", other_words, "li")
    assert [fault for fault in faults(other) if "does not hold" in fault]


@pytest.mark.parametrize("who", ["agent", "Gatewright", "ＳＹＳＴＥＭ"])
def test_the_machine_closes_nothing_however_its_name_is_written(tmp_path: Path, monkeypatch, who: str):
    workspace = failing(tmp_path / "p", "approvers: [{id: li}]", monkeypatch)
    with pytest.raises(PolicyRefused, match="is not a person"):
        close_run(workspace, ledger_of_run(workspace), who, "it only fails")
