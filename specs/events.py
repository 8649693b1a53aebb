"""Every kind of event in the ledger. Payloads carry a version; readers for old versions stay.

An event is (run, sequence, kind, actor, time, payload); its hash chains over the one before. Raw data never
sits in an event: only digests, counts and words.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import AwareDatetime, Field

from specs.base import Sha256, Strict
from specs.criteria import Verdict
from specs.decisions import Authentication, Decision
from specs.proposals import Finding


class Payload(Strict):
    """Base of all payloads; `kind` is the event's name in the ledger."""

    kind: ClassVar[str]
    version: int = 1


class RunCreated(Payload):
    """A run began: the frozen spec, policy, environment and code version by digest."""

    kind = "run.created"
    project: str
    spec: Sha256
    policy: Sha256
    environment: Sha256
    code: str
    stages: list[str] = Field(description="in the order of their folders")
    edges: dict[str, list[str]] = Field(
        default_factory=dict, description="gate to the stages that must be done before it opens; empty: a line"
    )
    by_person: list[str] = Field(default_factory=list, description="stages that wait for a person's work")
    rehearsal: float | None = Field(None, description="share of the samples; null: a run in earnest")
    parent: str = Field("", description="the run or folder whose adapter the training goes on from; empty: none")
    parent_weights: Sha256 | None = Field(None, description="of that adapter")
    solo: bool
    policy_pinned: bool = Field(False, description="the policy was compared with a pin outside the project")
    identity: str = Field("", description="random, so that a run of this id elsewhere is another run; old runs: none")


class SpecAmended(Payload):
    """Before anything was approved, project.yaml was taken in anew: the open first gate is withdrawn, and a new round
    shows what follows. Nobody's decision is needed for that; the next gate is where it is decided on."""

    kind = "spec.amended"
    before: Sha256
    spec: Sha256
    changes: list[str] = Field(description="what differs, as dotted paths; empty where only raw files changed")
    by: str = Field("", description="system account of whoever asked for it")


class InputsHashed(Payload):
    """Digests of a stage's inputs, before it ran or after."""

    kind = "inputs.hashed"
    stage: str
    attempt: int
    moment: str = Field(pattern="^(before|after)$")
    inputs: dict[str, Sha256]


class AttemptReserved(Payload):
    """An attempt of a stage begins; its folder is `<attempt>.partial` until it is published."""

    kind = "attempt.reserved"
    stage: str
    attempt: int
    parameters: Sha256


class AttemptPublished(Payload):
    """An attempt is complete under its final name. `adopted` after a crash between rename and this record."""

    kind = "attempt.published"
    stage: str
    attempt: int
    evidence: Sha256
    report: Sha256
    report_html: Sha256 | None = None
    adopted: bool = False


class AttemptAbandoned(Payload):
    """A partial attempt was found and left: named, never used."""

    kind = "attempt.abandoned"
    stage: str
    attempt: int
    reason: str


class AttemptFailed(Payload):
    """A stage ended without evidence."""

    kind = "attempt.failed"
    stage: str
    attempt: int
    error: str
    message: str


class MemoryRung(Payload):
    """One rung of the out-of-memory ladder: what was tried instead of the approved configuration, and how it ended."""

    kind = "memory.rung"
    stage: str
    attempt: int
    number: int = Field(ge=1, description="1 is the approved configuration itself")
    rung: str = Field(description="approved, processes, allocator, probe, micro_batch, ...")
    changes: dict[str, Any] = Field(description="parameters that differ from the approved ones, by dotted path")
    outcome: str = Field(description="runs, out_of_memory, above_limit, failed, named, or skipped")
    why: str = ""
    taken: bool = Field(False, description="what the stage was measured with in the end")


class VerdictsRecorded(Payload):
    """What the criteria said of the recomputed metrics of one attempt."""

    kind = "verdicts.recorded"
    stage: str
    attempt: int
    verdicts: list[Verdict]


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


class RunWaits(Payload):
    """Whatever could run has run; the rest waits for people: at these gates, or for work on these stages."""

    kind = "run.waits"
    gates: list[str]
    work: list[str]


class StageSuperseded(Payload):
    """Attempts that a rework of an earlier stage made obsolete."""

    kind = "attempts.superseded"
    attempts: dict[str, int] = Field(description="stage to the last attempt that no longer counts")
    by_gate: str
    by_round: int


class PrefectAttached(Payload):
    """The Prefect flow run that mirrors this run from here on."""

    kind = "prefect.attached"
    flow_run: str
    reason: str


class LeaseTaken(Payload):
    """A process works on the run; `fence` grows with every holder. `reason`: why a silent holder was taken over."""

    kind = "lease.taken"
    fence: int
    owner: str
    taken_over_from: str = ""
    reason: str = ""


class CheckpointSaved(Payload):
    """A complete checkpoint of the training exists."""

    kind = "checkpoint.saved"
    stage: str
    attempt: int
    step: int
    sha256: Sha256


class RunStopped(Payload):
    """The run stopped on request with everything saved."""

    kind = "run.stopped"
    stage: str
    reason: str


class JudgementOverruled(Payload):
    """A person lets a training go on that its early judgement ended; the actor decides. Holds for these parameters."""

    kind = "judgement.overruled"
    stage: str
    attempt: int = Field(description="the one that ended")
    parameters: Sha256
    verdict: str = Field(pattern="^(stop|ask)$")
    reason: str
    authentication: Authentication
    credential: str = Field("", description="fingerprint of the key, or id of the token; never a secret")
    signature: str = Field("", description="SSH signature over the other fields, run and person; armoured")


class ReleasePublished(Payload):
    """The release bundle is complete."""

    kind = "release.published"
    folder: str
    manifest: Sha256


class RunFinished(Payload):
    """Terminal: the run reached its end. The end of a rehearsal says what it rehearsed and whether it passed."""

    kind = "run.finished"
    rehearsed: Sha256 | None = Field(None, description="fingerprint of its training; null: a run in earnest")
    passed: bool | None = Field(None, description="of a rehearsal: no blocking criterion failed, overridden or not")


class RunRejected(Payload):
    """Terminal: a person rejected."""

    kind = "run.rejected"
    gate: str
    round: int
    comment: str


class RunClosed(Payload):
    """Terminal: a person ended a run that cannot go on, outside a gate. `lost`: what of it was missing."""

    kind = "run.closed"
    reason: str
    lost: list[str] = Field(default_factory=list)
    authentication: Authentication | None = Field(None, description="as of a decision; null in old records")
    credential: str = Field("", description="fingerprint of the key, or id of the token; never a secret")
    account: str = Field("", description="system account that typed it; empty where a key or token proves who closes")
    signature: str = Field("", description="SSH signature over the other fields, run and person; armoured")


class FilesDeleted(Payload):
    """Housekeeping deleted files that nothing recorded refers to; in the upkeep chain of the project."""

    kind = "files.deleted"
    rule: str
    run: str | None = None
    paths: list[str] = Field(description="relative to the project; a folder stands for all of it")
    files: int
    bytes: int


class RemovedFile(Strict):
    """One file that is gone for good, and the digest by which the record knows it."""

    path: str
    sha256: Sha256
    bytes: int


class DataRemoved(Payload):
    """Files of a run were removed on request, such as a person's data; in the upkeep chain of the project."""

    kind = "data.removed"
    run: str
    reason: str
    files: list[RemovedFile]


class ProjectRestored(Payload):
    """A project was restored from a backup, here or on another machine; in the upkeep chain of the project."""

    kind = "project.restored"
    backup: Sha256
    made_at: AwareDatetime
    files: int


class TokenMade(Payload):
    """A personal token was made; in the upkeep chain of the project. The actor is the account of the system."""

    kind = "token.made"
    token: str = Field(description="its id, never the token itself")
    approver: str = Field(description="whom it proves")
    expires_at: AwareDatetime


class TokenRevoked(Payload):
    """A personal token proves nothing from here on; in the upkeep chain of the project."""

    kind = "token.revoked"
    token: str
    approver: str


class UnknownEvent(Payload):
    """An event of a kind this version does not know; kept, shown, never interpreted."""

    kind = "unknown"
    original_kind: str
    body: dict[str, Any]


PAYLOADS: dict[str, type[Payload]] = {
    cls.kind: cls
    for cls in (
        RunCreated,
        SpecAmended,
        InputsHashed,
        AttemptReserved,
        AttemptPublished,
        AttemptAbandoned,
        AttemptFailed,
        MemoryRung,
        VerdictsRecorded,
        ProposalMade,
        TranscriptStored,
        FallbackTaken,
        GateOpened,
        ApprovalRecorded,
        GateAmended,
        GateExpired,
        DecisionRecorded,
        WorkHandedOut,
        WorkHandedIn,
        RunWaits,
        StageSuperseded,
        PrefectAttached,
        LeaseTaken,
        CheckpointSaved,
        RunStopped,
        JudgementOverruled,
        ReleasePublished,
        RunFinished,
        RunRejected,
        RunClosed,
        FilesDeleted,
        DataRemoved,
        ProjectRestored,
        TokenMade,
        TokenRevoked,
    )
}
TERMINAL_KINDS = frozenset({"run.finished", "run.rejected", "run.closed"})


class Event(Strict):
    """One record of the ledger. `hash` is over the canonical bytes of all other fields."""

    run: str
    sequence: int = Field(ge=1, description="gap-free per run, from 1")
    kind: str
    actor: str
    at: AwareDatetime
    payload: dict[str, Any]
    previous: Sha256
    hash: Sha256

    def read(self) -> Payload:
        """The payload as its model; `UnknownEvent` for a kind that this version does not know."""
        model = PAYLOADS.get(self.kind)
        if model is None:
            return UnknownEvent(original_kind=self.kind, body=self.payload)
        return model.model_validate(self.payload)
