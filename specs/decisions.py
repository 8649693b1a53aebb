"""Gates and decisions: what was shown, and what a person said to it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from specs.base import Name, Sha256, Strict

Choice = Literal["approve", "rework", "reject"]
Authentication = Literal["ssh_signature", "token", "terminal", "unauthenticated"]


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
    proposal: Sha256
    inputs: dict[str, Sha256]
    base_model: Sha256 | None
    code: str
    spec: Sha256
    policy: Sha256


class Decision(Strict):
    """One person's decision on one round of one gate. `choice` has no default: nothing approves by accident."""

    schema_version: int = 1
    run: str
    gate: Name
    round: int = Field(ge=1)
    digest: Sha256 = Field(description="SHA-256 of the stored bytes of gate.json")
    choice: Choice
    actor: str = Field(min_length=1)
    authentication: Authentication
    comment: str = ""
    edits: dict[str, Any] = Field(default_factory=dict, description="dotted parameter path to new value")
    edited_proposal: Sha256 | None = Field(None, description="digest of the proposal with the edits in it")
    override: bool = Field(False, description="approve although a blocking criterion failed")
    rework_stage: Name | None = Field(None, description="the stage to do again; later attempts are superseded")
    self_approved: bool = False
