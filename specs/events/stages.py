"""Events of the stages: attempts, what they saved and measured, what became of them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from specs.base import Sha256
from specs.criteria import Verdict
from specs.decisions import Authentication
from specs.events.base import Payload
from specs.resuming import Changed
from specs.trials import TrialRecord


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


class TrialEnded(Payload, TrialRecord):
    """One small trial of a dry run: what it changed, what it did to the measured loss, and how it ended."""

    kind = "trial.ended"
    stage: str
    attempt: int


class VerdictsRecorded(Payload):
    """What the criteria said of the recomputed metrics of one attempt."""

    kind = "verdicts.recorded"
    stage: str
    attempt: int
    verdicts: list[Verdict]


class CheckpointSaved(Payload):
    """A complete checkpoint of the training exists."""

    kind = "checkpoint.saved"
    stage: str
    attempt: int
    step: int
    sha256: Sha256


class StageSuperseded(Payload):
    """Attempts that a rework of an earlier stage made obsolete."""

    kind = "attempts.superseded"
    attempts: dict[str, int] = Field(description="stage to the last attempt that no longer counts")
    by_gate: str
    by_round: int


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


class ResumeConfirmed(Payload):
    """A person lets a training go on with another device or other libraries than its checkpoint was written with; the
    actor decides. Holds for these parameters and exactly these differences."""

    kind = "resume.confirmed"
    stage: str
    attempt: int = Field(description="the one that was refused")
    parameters: Sha256
    differences: list[Changed] = Field(min_length=1, description="the whole table that the person saw")
    reason: str
    authentication: Authentication
    credential: str = Field("", description="fingerprint of the key, or id of the token; never a secret")
    signature: str = Field("", description="SSH signature over the other fields, run and person; armoured")
