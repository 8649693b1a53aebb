"""Take in the work of a person for a stage that waits for it: who, what, by digest. It executes nothing."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from flows import doorbell
from flows.deciding import policy_is_pinned, proof, signature_of
from flows.entitled import require_entitled
from flows.frozen import frozen_policy
from flows.ledger import Ledger
from flows.state import RunState, fold
from flows.steps import waits_for_work
from flows.tokens import account
from flows.workspace import Workspace
from specs.canonical import sha256_bytes
from specs.decisions import Authentication, work_bytes
from specs.errors import DecisionRefused, InputError, PolicyRefused
from specs.events import Payload, WorkHandedIn
from specs.files import write_bytes
from specs.policy import Policy, is_machine
from specs.rulings import PROOFS

MAX_BYTES = 64 << 20


def hand_in(
    workspace: Workspace,
    ledger: Ledger,
    file: Path,
    actor: str,
    *,
    stage: str | None = None,
    authentication: Authentication = "unauthenticated",
    token: str | None = None,
    key: str | None = None,
) -> dict[str, Any]:
    """Keep a file by its digest and record that this person handed it in; returns the record as plain data.

    It may be handed in again until the stage runs, and after it failed: the newest counts. `key` is the SSH key to
    sign with, `default` for the person's own; `token` is a personal token. Raises `InputError`, `DecisionRefused`,
    `PolicyRefused` or `SignatureRefused`; then nothing was recorded.
    """
    state = fold(ledger.events(workspace.run))
    name = _waiting(state, workspace.run, stage)
    policy_is_pinned(workspace, state)
    require_entitled(ledger, workspace)
    credential, authentication = proof(workspace, actor, authentication, token, key)
    data = _read(file)
    work = WorkHandedIn(
        stage=name,
        round=state.approvals[name].round,
        sha256=sha256_bytes(data),
        authentication=authentication,
        credential=credential,
        account="" if key or token else account(),
    )
    _may(frozen_policy(state, workspace.folder), actor, work)
    if key:
        work = _signed(workspace, state, actor, key, work)
    write_bytes(workspace.handed_in(work.sha256), data)

    def judge(now_state: RunState, now: datetime) -> tuple[Payload, str]:
        if now_state.approvals[_waiting(now_state, workspace.run, name)].round != work.round:
            raise DecisionRefused(f"run {workspace.run} moved meanwhile", "look where it stands: `gatewright status`")
        return work, actor

    event = ledger.settle(workspace.run, judge)
    told = doorbell.ring(fold(ledger.events(workspace.run)))
    return {**event.payload, "author": actor, "sequence": event.sequence, "worker_told": told}


def _waiting(state: RunState, run: str, stage: str | None) -> str:
    waiting = waits_for_work(state)
    if not waiting or (stage is not None and stage not in waiting):
        what = f"{stage} of run {run} waits for no work" if stage else f"no stage of run {run} waits for work"
        raise DecisionRefused(f"{what}: it is {state.state} at {state.stage}", f"`gatewright status {run}` shows where")
    if stage is None and len(waiting) > 1:
        raise InputError(f"several stages wait for work: {', '.join(waiting)}", "say which one with --stage")
    return stage or waiting[0]


def _signed(workspace: Workspace, state: RunState, actor: str, key: str, work: WorkHandedIn) -> WorkHandedIn:
    """The record with its signature, verified against the keys that the frozen policy lists for the person."""
    data = work_bytes(workspace.run, actor, work.model_dump(mode="json"))
    return work.model_copy(update={"signature": signature_of(workspace, state, actor, key, data)})


def _may(policy: Policy, actor: str, work: WorkHandedIn) -> None:
    """Raises `PolicyRefused` for who may not decide at the gate of the stage, or proves too little who it is."""
    rules, stage = policy.at(work.stage), work.stage
    if is_machine(actor):
        raise PolicyRefused(f"{actor!r} is not a person", "a person hands work in")
    if actor not in rules.reviewers:
        raise PolicyRefused(
            f"{actor!r} may not decide at gate {stage}, and so not do its work",
            f"who may: {', '.join(rules.reviewers)}; policy.gates.{stage} of project.yaml says so, for a new run",
        )
    if not rules.proves_work(work.authentication, work.version):
        least = rules.work_authentication(work.version)
        raise PolicyRefused(f"work on {stage} needs {least}, and this is {work.authentication}", PROOFS[least])


def _read(file: Path) -> bytes:
    try:
        if not file.is_file():
            raise InputError(f"{file} is no file", "name the file to hand in")
        if file.stat().st_size > MAX_BYTES:
            raise InputError(f"{file} has more than {MAX_BYTES >> 20} MiB", "hand in the filled sheet alone")
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", "check its permissions") from error
