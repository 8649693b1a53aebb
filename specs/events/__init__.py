"""Every kind of event in the ledger. Payloads carry a version; readers for old versions stay.

An event is (run, sequence, kind, actor, time, payload); its hash chains over the one before. Raw data never
sits in an event: only digests, counts and words.
"""

from __future__ import annotations

from typing import Any

from pydantic import AwareDatetime, Field

from specs.base import Sha256, Strict
from specs.events.base import Payload, UnknownEvent
from specs.events.gates import (
    ApprovalRecorded,
    DecisionRecorded,
    FallbackTaken,
    GateAmended,
    GateExpired,
    GateOpened,
    ProposalMade,
    TranscriptStored,
    WorkHandedIn,
    WorkHandedOut,
)
from specs.events.runs import (
    LeaseTaken,
    PrefectAttached,
    ReleasePublished,
    RunClosed,
    RunCreated,
    RunFinished,
    RunRejected,
    RunStopped,
    RunWaits,
    SpecAmended,
)
from specs.events.stages import (
    AttemptAbandoned,
    AttemptFailed,
    AttemptPublished,
    AttemptReserved,
    CheckpointSaved,
    InputsHashed,
    JudgementOverruled,
    MemoryRung,
    ResumeConfirmed,
    StageSuperseded,
    TrialEnded,
    VerdictsRecorded,
)
from specs.events.upkeep import DataRemoved, FilesDeleted, ProjectRestored, RemovedFile, TokenMade, TokenRevoked

__all__ = [
    "PAYLOADS",
    "TERMINAL_KINDS",
    "ApprovalRecorded",
    "AttemptAbandoned",
    "AttemptFailed",
    "AttemptPublished",
    "AttemptReserved",
    "CheckpointSaved",
    "DataRemoved",
    "DecisionRecorded",
    "Event",
    "FallbackTaken",
    "FilesDeleted",
    "GateAmended",
    "GateExpired",
    "GateOpened",
    "InputsHashed",
    "JudgementOverruled",
    "LeaseTaken",
    "MemoryRung",
    "Payload",
    "PrefectAttached",
    "ProjectRestored",
    "ProposalMade",
    "ReleasePublished",
    "RemovedFile",
    "ResumeConfirmed",
    "RunClosed",
    "RunCreated",
    "RunFinished",
    "RunRejected",
    "RunStopped",
    "RunWaits",
    "SpecAmended",
    "StageSuperseded",
    "TokenMade",
    "TokenRevoked",
    "TranscriptStored",
    "TrialEnded",
    "UnknownEvent",
    "VerdictsRecorded",
    "WorkHandedIn",
    "WorkHandedOut",
]

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
        TrialEnded,
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
        ResumeConfirmed,
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
