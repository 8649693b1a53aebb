"""Gates and decisions: what was shown, and what a person said to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import Field

from specs.base import Name, Sha256, Strict
from specs.canonical import canonical_bytes

Choice = Literal["approve", "rework", "reject"]
Authentication = Literal["unauthenticated", "terminal", "token", "ssh_signature"]
RANKS: tuple[Authentication, ...] = get_args(Authentication)
"""Ways of saying who decides, the weakest first: a mere claim, typed again at a terminal, a token, a signature."""


class FinishedDocument(Strict):
    """A further finished stage that a gate shows, where it waited for several."""

    stage: Name
    attempt: int
    evidence: Sha256
    report: Sha256
    report_html: Sha256 | None = None
    plots: dict[str, Sha256]


class GateDocument(Strict):
    """`gate.json`: digests of everything a person is shown. Its own digest is what a decision names."""

    schema_version: int = 1
    run: str
    gate: Name = Field(description="the stage that the gate leads to, or release")
    round: int = Field(ge=1)
    finished_stage: Name | None
    finished_attempt: int | None
    evidence: Sha256 | None
    report: Sha256 | None
    report_html: Sha256 | None = None
    plots: dict[str, Sha256]
    also: list[FinishedDocument] = Field(default_factory=list, description="further finished stages that it shows")
    proposal: Sha256
    task_sheet: Sha256 | None = Field(None, description="of the task_sheet.yaml that the first gate signs")
    inputs: dict[str, Sha256]
    base_model: Sha256 | None
    code: str
    spec: Sha256
    policy: Sha256
    identity: str = Field("", description="of the run, as run.created has it; a run of this id elsewhere has another")
    after: Sha256 | None = Field(None, description="hash of the event before the gate opened: nothing shown is reused")
    amends: Sha256 | None = Field(None, description="digest of what the gate showed before a person's edit")
    edited_by: list[str] = Field(default_factory=list, description="whose edits the proposal holds, in order")


class Decision(Strict):
    """One person's decision on one round of one gate. `choice` has no default: nothing approves by accident."""

    schema_version: int = 2
    run: str
    gate: Name
    round: int = Field(ge=1)
    digest: Sha256 = Field(description="SHA-256 of the stored bytes of gate.json, as it was shown")
    choice: Choice
    actor: str = Field(min_length=1)
    authentication: Authentication
    comment: str = ""
    edits: dict[str, Any] = Field(default_factory=dict, description="dotted parameter path to new value")
    edited_proposal: Sha256 | None = Field(None, description="digest of the proposal with the edits in it")
    requests: dict[str, Any] = Field(
        default_factory=dict, description="of a rework: dotted parameter path to the value asked for, or less or more"
    )
    override: bool = Field(False, description="approve although a blocking criterion failed")
    rework_stage: Name | None = Field(None, description="the stage to do again; later attempts are superseded")
    self_approved: bool = False
    rehearsal: str = Field("", description="the passed rehearsal that a training on several devices rests on")
    credential: str = Field("", description="fingerprint of the key, or id of the token; never a secret")
    account: str = Field("", description="system account that typed it; empty where a key or token proves who decides")
    signature: str = Field("", description="SSH signature over all other fields, armoured")


def closing_bytes(run: str, actor: str, stored: Mapping[str, Any]) -> bytes:
    """What the signature of a closing covers: run, person, and every stored field of it but the signature itself."""
    return canonical_bytes({"closes": run, "actor": actor, **{k: v for k, v in stored.items() if k != "signature"}})


def overruling_bytes(run: str, actor: str, stored: Mapping[str, Any]) -> bytes:
    """What the signature covers of somebody who lets a training go on: run, person, every stored field but itself."""
    return canonical_bytes({"goes_on": run, "actor": actor, **{k: v for k, v in stored.items() if k != "signature"}})


def work_bytes(run: str, actor: str, stored: Mapping[str, Any]) -> bytes:
    """What the signature of work that was handed in covers: run, author, every stored field of it but itself."""
    return canonical_bytes({"hands_in": run, "actor": actor, **{k: v for k, v in stored.items() if k != "signature"}})


def signed_bytes(decision: Decision | Mapping[str, Any]) -> bytes:
    """What a signature covers: the canonical bytes of every field of a decision but the signature itself.

    A decision of the ledger is given as its stored fields: fields that a later version adds were not signed.
    """
    stored = decision.model_dump(mode="json") if isinstance(decision, Decision) else decision
    return canonical_bytes({name: value for name, value in stored.items() if name != "signature"})
