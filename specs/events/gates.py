"""Events of the gates: proposals, decisions, and work that people hand in."""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from specs.base import Sha256
from specs.decisions import Authentication, Decision
from specs.events.base import Payload
from specs.proposals import Finding


class ProposalMade(Payload):
    """A proposal was stored, before its gate opened."""

    kind = "proposal.made"
    gate: str
    round: int
    proposal: Sha256
    proposer: str


class TranscriptStored(Payload):
    """The conversation with a language model behind a proposal, by digest."""

    kind = "transcript.stored"
    gate: str
    round: int
    transcript: Sha256
    model: str
    calls: int


class FallbackTaken(Payload):
    """Something did not go the first way: what, why, and what was done instead."""

    kind = "fallback.taken"
    stage: str
    what: str
    why: str
    instead: str


class GateOpened(Payload):
    """A gate waits for a person; `digest` is over the stored bytes of `gate.json`."""

    kind = "gate.opened"
    gate: str
    round: int
    digest: Sha256
    blocked: bool = Field(description="a blocking criterion failed, or the sheet leaves open what it must not")
    findings: list[Finding] | None = Field(
        None, description="the sheet's blocking findings; null where the code of that time did not look"
    )


class ApprovalRecorded(Payload):
    """A person approved and others must too: the quorum is not complete. One per person, round and digest."""

    kind = "approval.recorded"
    decision: Decision
    approved_by: list[str] = Field(description="everybody who approved this digest so far, this person last")
    quorum: int = Field(ge=1, description="how many must")


class GateAmended(Payload):
    """A person approved with edits and others must confirm them: from here on the gate shows the edited proposal."""

    kind = "gate.amended"
    decision: Decision = Field(description="names the digest that was shown before, and the edits")
    digest: Sha256 = Field(description="of what the gate shows now; earlier approvals do not count for it")
    approved_by: list[str] = Field(description="who counts as having approved it; an editor counts only by policy")
    quorum: int = Field(ge=1, description="how many must approve it")


class GateExpired(Payload):
    """Nobody completed the decision in time: the gate is denied, as by a reject. Time never approves."""

    kind = "gate.expired"
    gate: str
    round: int
    digest: Sha256
    expired_at: AwareDatetime


class DecisionRecorded(Payload):
    """The decision that closes a gate's round. Exactly one per gate and round."""

    kind = "decision.recorded"
    decision: Decision
    approved_by: list[str] = Field(
        default_factory=list, description="of an approval: everybody whose approvals the quorum is made of"
    )


class WorkHandedOut(Payload):
    """A stage that a person completes begins: what the person is given lies in the run's folder, by digest."""

    kind = "work.handed_out"
    stage: str
    round: int = Field(description="of the gate whose approval it rests on")
    files: dict[str, Sha256]


class WorkHandedIn(Payload):
    """A person handed work in. The newest one before the stage runs counts; the actor is its author.

    Version 2: it is proved as a decision at the gate of its stage. Version 1: a token was enough where a decision
    needed a signature, and nothing could be signed.
    """

    kind = "work.handed_in"
    version: int = 2
    stage: str
    round: int
    sha256: Sha256 = Field(description="of the file as it was handed in; it is kept under this name")
    authentication: Authentication
    credential: str = Field("", description="id of the token; never a secret")
    account: str = Field("", description="system account that typed it; empty where a key or token proves who")
    signature: str = Field("", description="SSH signature over all other fields, run and author, armoured")
