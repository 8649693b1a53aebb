"""What an added stage is told and what it answers: the same document for a task and for a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from specs.base import Language, Name, Strict


class HandedIn(Strict):
    """The work of a person, for the task that goes on with it."""

    sheet: Path = Field(description="folder of what the person was given")
    file: Path = Field(description="what came back, under the name handed_in")
    author: str
    authentication: str


class AddedJob(Strict):
    """`job.json`: what to do, on what, where to write. Paths are absolute.

    `do` is `run` (write the outputs into `artifacts`), `verify` (compute the metrics again from `artifacts` and
    `inputs`; write nothing there) or `hand_out` (write what a person needs into `artifacts`).
    """

    version: Literal[1] = 1
    do: Literal["run", "verify", "hand_out"]
    run: str
    stage: str
    attempt: int
    language: Language
    parameters: dict[str, Any] = Field(description="as approved")
    inputs: dict[Name, Path] = Field(description="file or folder of each input, by the name that project.yaml gives it")
    artifacts: Path
    checkpoints: Path | None = Field(None, description="folder that outlives an attempt that was cut off; run only")
    base_model: Path | None = Field(None, description="folder of the base model, where needs_model is set")
    base_model_sha256: str | None = None
    spec: dict[str, Any] = Field(default_factory=dict, description="project.yaml as the run froze it, without secrets")
    handed_in: HandedIn | None = None
    result: Path = Field(description="where a command writes its answer")


class Order(Strict):
    """What the worker of an added stage is started with."""

    job: AddedJob
    task: str | None = None
    command: list[str] | None = None
    packages: list[str]
    cwd: Path
    timeout_s: float | None = None


class Answer(Strict):
    """What a task returns and a command writes to `result`: numbers by metric, and what is to be said of the run.

    A metric that could not be measured is null, with the reason.
    """

    metrics: dict[Name, float | None] = Field(default_factory=dict)
    reasons: dict[Name, str] = Field(default_factory=dict, description="of metrics that are null")
    notes: list[str] = Field(default_factory=list, max_length=1000)
