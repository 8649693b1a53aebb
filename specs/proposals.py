"""The agent's proposal for the next stage: parameters, reasons, bounds checked, memory checked. Content-addressed."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from specs.base import Name, Sha256, Strict
from specs.canonical import digest
from specs.criteria import Criterion


class Reason(Strict):
    """Why one parameter has its value; `source` names the evidence, rule or person it comes from."""

    parameter: str
    text: str
    source: str


class Expectation(Strict):
    """What a stage should bring, in a number."""

    metric: str
    value: float
    unit: str
    why: str = ""
    by_rule: float | None = Field(None, description="what the rules said before earlier runs or a person changed it")
    low: float | None = Field(None, description="with `high` what holds four cases of five; null: not estimated")
    high: float | None = None
    work: dict[str, float] = Field(
        default_factory=dict, description="of a time: the counted work that it follows from, by unit"
    )
    set_by: str = Field("", description="the file in which a person wrote this number; empty for one of the rules")


class SubTask(Strict):
    """A piece of a stage with an outcome of its own: `cleaning`, `duplicates`, `split`, ..."""

    name: Name
    inputs: list[str] = Field(default_factory=list)
    metrics: list[Name] = Field(description="the metrics of the stage that this piece answers for")


class SheetStage(Strict):
    """One stage of the task sheet. An input is a path of the project or `<stage>: <output>`."""

    name: Name
    inputs: list[str]
    expected: list[Expectation]
    criteria: list[Criterion]
    budget_hours: float | None
    signed_by: list[str]
    on_failure: str
    outputs: list[str] = Field(default_factory=list)
    subtasks: list[SubTask] = Field(default_factory=list)
    runs: str = Field("", description="of a stage that the project adds: what code runs, and from where")


class Finding(Strict):
    """Something that the sheet leaves open. A blocking one keeps the first gate closed."""

    rule: str = Field(pattern=r"^[a-z][a-z-]+$")
    stage: Name | None = None
    blocking: bool
    text: str = Field(description="what is missing or cannot hold, and why it matters")
    sentence: str = Field(description="what to write, ready to paste where that is possible")


class TaskSheet(Strict):
    """The written decomposition of a project; signed at the first gate."""

    goal: str
    stages: list[SheetStage]
    findings: list[Finding] = Field(default_factory=list, description="what the completeness check found")


class Calibration(Strict):
    """What a stress test taught about the account: process bytes = `framework_bytes` + `ratio` x predicted bytes.

    `ratio` is measured over predicted, of what a process takes beside its framework; `key` names device, driver,
    software and method that it holds for; `evidence` is the digest of the artifact that holds the measurement.
    """

    ratio: float = Field(gt=0)
    framework_bytes: int = Field(ge=0)
    key: Sha256
    evidence: Sha256


class MemoryCheck(Strict):
    """Predicted peak against what the device has. `method` is traced, derived or closed-form."""

    peak_bytes: int
    usable_bytes: int
    device: str
    method: str
    fits: bool
    residents: dict[str, int] = Field(default_factory=dict)
    phases: dict[str, int] = Field(default_factory=dict)
    account_bytes: int | None = Field(None, description="before the calibration; null where there is none")
    calibration: Calibration | None = None

    def within(self, share: float) -> MemoryCheck:
        """The same where only so much of the usable memory may be filled."""
        fits = self.fits and self.peak_bytes <= share * self.usable_bytes
        return self if fits == self.fits else self.model_copy(update={"fits": fits})


class Answer(Strict):
    """How a proposal answers one thing that was asked for."""

    asked: str = Field(description="the person's words, or parameter=value")
    outcome: Literal["done", "partly", "kept", "refused", "not_understood"]
    text: str


UNKNOWN_LICENCE = "unknown"
"""The licence of a base model that names none."""


class BaseModelFacts(Strict):
    """What a person should know of the base model before anything is built on it."""

    revision: str
    licence: str = Field(description="as the model card names it; unknown where nothing does")


class Proposal(Strict):
    """Parameters for one stage. Holds no time, host, run id or absolute path, so that equal input is equal bytes."""

    schema_version: int = 1
    stage: Name
    round: int = Field(ge=1)
    parameters: dict[str, Any]
    reasons: list[Reason]
    expected: list[Expectation] = Field(default_factory=list)
    ahead: dict[str, list[Expectation]] = Field(
        default_factory=dict, description="what the stages after this one should bring, from what is known by now"
    )
    memory: MemoryCheck | None = None
    proposer: str
    answers_feedback: str = Field("", description="how this round answers the feedback of the last one")
    answers: list[Answer] = Field(
        default_factory=list, description="the same, one by one, where each can be told apart"
    )
    edited_by: str = Field("", description="the person whose edits are part of the parameters")
    task_sheet: TaskSheet | None = None
    base_model: BaseModelFacts | None = Field(None, description="shown at the first gate")
    sheet_file: Sha256 | None = Field(None, description="of the task_sheet.yaml whose numbers the sheet has")
    warnings: list[str] = Field(default_factory=list)

    @property
    def sha256(self) -> Sha256:
        """Digest of the canonical bytes."""
        return digest(self)


def blocking_findings(proposal: Proposal) -> list[Finding]:
    """What the task sheet of a proposal leaves open and must not; empty for a proposal without a sheet."""
    return [f for f in proposal.task_sheet.findings if f.blocking] if proposal.task_sheet else []
