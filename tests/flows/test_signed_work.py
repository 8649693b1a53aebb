"""Where a gate asks for signatures, the work of its stage is signed too, and the audit verifies it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flows.audit import verify
from flows.audit.report import AuditReport
from flows.handing import hand_in
from flows.ledgers import ledger_of_run
from flows.state import fold
from flows.workspace import Workspace
from specs.errors import PolicyRefused, SignatureRefused
from specs.events import WorkHandedIn
from tests.support import light_run
from tests.support.cli import called

pytestmark = [
    pytest.mark.usefixtures("light_stages"),
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen"),
]
LOOK = """
task_packages: [tests.support.added_tasks]
added_stages:
  look:
    inputs: {{text: data/more.txt}}
    hand_out: tests.support.added_tasks:sheet
    task: tests.support.added_tasks:take
    verify: tests.support.added_tasks:labels
    outputs: [labels.csv]
    metrics: {{labelled: {{unit: samples}}}}
policy:
  solo: false
  approvers: [{{id: me, keys: ["{key}"]}}]
  gates: {{look: {{authentication: ssh_signature}}}}
"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """SSH keys of the approver and of a stranger."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("me", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    return {name: str(folder / name) for name in ("me", "stranger")}


def waits_for_work(folder: Path, keys: dict[str, str]) -> Workspace:
    public = " ".join(Path(keys["me"] + ".pub").read_text().split()[:2])
    workspace = light_run.begin(light_run.make_project(folder, more=LOOK.format(key=public)))
    light_run.passage(workspace)
    light_run.decide(workspace, name="data")
    light_run.passage(workspace)
    light_run.decide(workspace, name="look", key=keys["me"])
    light_run.passage(workspace)
    (folder / "filled.csv").write_text("all is good\n")
    return workspace


def give(workspace: Workspace, **proof: Any) -> dict[str, Any]:
    return hand_in(workspace, ledger_of_run(workspace), workspace.project_dir / "filled.csv", "me", **proof)


def faults(workspace: Workspace) -> list[str]:
    audit: AuditReport = verify(ledger_of_run(workspace), workspace.run, workspace.folder)
    return [step.detail for step in audit.authority.steps if not step.ok]


def put(workspace: Workspace, work: WorkHandedIn) -> int:
    """Write a record past all checks, as whoever owns the database can; returns its place in the chain."""
    return ledger_of_run(workspace).append(workspace.run, work, "me").sequence


def test_work_is_signed_where_its_gate_asks_for_a_signature_and_verifies(tmp_path, keys):
    workspace = waits_for_work(tmp_path / "p", keys)
    with pytest.raises(PolicyRefused, match="work on look needs ssh_signature"):
        give(workspace, authentication="terminal")
    with pytest.raises(SignatureRefused):
        give(workspace, key=keys["stranger"])
    refused = called("hand-in", "filled.csv", "--as", "me", "--yes", cwd=workspace.project_dir)
    assert refused.code == 6
    assert "--sign" in refused.err
    taken = called("hand-in", "filled.csv", "--as", "me", "--sign", keys["me"], cwd=workspace.project_dir)
    assert taken.code == 0, taken.err
    assert light_run.passage(workspace).ending == "waiting"
    assert fold(ledger_of_run(workspace).events(workspace.run)).done("look")
    assert faults(workspace) == []


CHANGES: dict[str, dict[str, Any]] = {
    "does not hold": {"sha256": "b" * 64},
    "does not say truly whether it is signed": {"signature": ""},
    "work on look asks for ssh_signature": {"authentication": "token", "signature": ""},
    "": {"version": 1, "authentication": "token", "signature": ""},  # before work could be signed
}


def test_a_record_whose_proof_does_not_hold_turns_the_audit_red(tmp_path, keys):
    workspace = waits_for_work(tmp_path / "p", keys)
    stored = give(workspace, key=keys["me"])
    given = WorkHandedIn.model_validate({k: v for k, v in stored.items() if k in WorkHandedIn.model_fields})
    assert given.version == 2
    events = {found: put(workspace, given.model_copy(update=change)) for found, change in CHANGES.items()}
    said = "; ".join(faults(workspace))
    for found, sequence in events.items():
        named = [part for part in said.split("; ") if f"event {sequence}:" in part]
        assert any(found in part for part in named) if found else "version 1" in "".join(named)


def test_work_from_before_it_could_be_signed_stays_valid_and_the_audit_says_by_which_rule(tmp_path, keys):
    workspace = waits_for_work(tmp_path / "p", keys)
    stored = give(workspace, key=keys["me"])
    given = WorkHandedIn.model_validate({k: v for k, v in stored.items() if k in WorkHandedIn.model_fields})
    audit: AuditReport = verify(ledger_of_run(workspace), workspace.run, workspace.folder)
    assert not any("version 1" in step.detail for step in audit.authority.steps)
    sequence = put(workspace, given.model_copy(update=CHANGES[""]))
    audit = verify(ledger_of_run(workspace), workspace.run, workspace.folder)
    (step,) = [step for step in audit.authority.steps if "version 1" in step.detail]
    assert step.ok
    assert step.verified == "part"
    assert f"event {sequence}: work on look by me" in step.detail
    assert "token counted where the gate asks for ssh_signature" in step.detail
