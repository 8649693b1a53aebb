"""What a release bundle is made of: handed in by the flow, which reads it from the ledger."""

from __future__ import annotations

from pathlib import Path

from pydantic import AwareDatetime, Field

from specs.base import Language, Name, Sha256, Strict
from specs.criteria import Verdict
from specs.decisions import Authentication, Choice
from specs.parameters import Method
from specs.parent import Parent


class ReleaseDecision(Strict):
    """One decision of the run, as the ledger has it."""

    gate: Name
    round: int = Field(ge=1)
    choice: Choice
    actor: str = Field(min_length=1)
    at: AwareDatetime
    authentication: Authentication
    self_approved: bool
    override: bool = False
    comment: str = ""
    digest: Sha256 = Field(description="SHA-256 of the gate document that was decided on")


class ReleaseExpectation(Strict):
    """One number of the task sheet beside what came, with its titles in the language of the bundle."""

    stage: Name
    metric: Name
    unit: str
    signed: float | None = Field(description="of the sheet that the first gate signed; null: it had no such number")
    expected: float = Field(description="the newest number made before the stage ran")
    actual: float | None = Field(description="measured; null where the stage did not measure it")
    stage_title: str
    title: str


class ReleaseFacts(Strict):
    """Everything a release bundle says that is not in the attempts themselves."""

    run: str
    project: str
    language: Language
    base_model: str = Field(description="as in the spec")
    base_model_sha256: Sha256
    licence: str = Field("", description="of the base model; empty: not stated by it")
    method: Method
    parent: Parent | None = Field(None, description="the earlier training that this one went on from")
    data: Path = Field(description="folder of the data attempt")
    train: Path = Field(description="folder of the train attempt")
    evaluate: Path = Field(description="folder of the evaluate attempt")
    verdicts: dict[str, list[Verdict]] = Field(description="stage to the verdicts on its last attempt")
    decisions: list[ReleaseDecision] = Field(description="in the order of the ledger")
    sheet: list[ReleaseExpectation] = Field(
        default_factory=list, description="the whole task sheet, expected beside actual"
    )
    rewritten: Path | None = Field(
        None, description="the samples that training read, where a stage of the project's own rewrote those of data"
    )
    code: str = Field("", description="version and digest of the code that the run began with")
    ledger_head: Sha256 = Field(description="hash of the last event before the release")
    merged: bool = Field(False, description="add the base model with the adapter merged into its weights")
    base_model_folder: Path | None = Field(None, description="local folder; needed for a merged model")
    threads: int = Field(2, ge=1)

    @property
    def samples(self) -> Path:
        """The table that training read."""
        return self.rewritten or self.data / "artifacts" / "samples.parquet"

    @property
    def attempts(self) -> dict[str, Path]:
        """Stage to the folder of the attempt that the release rests on."""
        return {"data": self.data, "train": self.train, "evaluate": self.evaluate}
