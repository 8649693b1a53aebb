"""The contract of a stage: what it is given, where it writes, and how it says how far it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from specs.base import Name, Sha256, Strict
from specs.project import Project
from specs.proposals import MemoryCheck
from specs.resuming import Changed


class Handed(Strict):
    """The work that a person handed in for a stage: the file, who made it, and what the person had been given."""

    sheet_dir: Path = Field(description="folder of the files that were handed out")
    files: dict[str, Sha256] = Field(description="of the sheet: name to digest")
    path: Path
    sha256: Sha256
    author: str
    authentication: str
    at: str


class StageContext(Strict):
    """Everything a stage may use. It is written as `context.json`, so that a stage can be run again by itself.

    A stage writes only below `out_dir` (`artifacts/`, `plots/`, `logs/`) and, for checkpoints, `checkpoints_dir`.
    """

    run: str
    stage: Name
    attempt: int = Field(ge=1)
    project_dir: Path
    spec: Project
    parameters: dict[str, Any] = Field(description="of the approved proposal; validate with PARAMETERS[stage]")
    inputs: dict[str, Path] = Field(
        description="folder of the attempt of each earlier stage, by stage name; its files lie in artifacts/"
    )
    memory: MemoryCheck | None = Field(None, description="what the approved proposal said of memory")
    base_model: Path | None = Field(None, description="local folder with safetensors weights and tokenizer")
    base_model_sha256: Sha256 | None = None
    out_dir: Path
    checkpoints_dir: Path
    go_on: str = Field("", description="why a person lets a training go on that its early judgement ended")
    confirmed: list[Changed] = Field(
        default_factory=list,
        description="what a training may have otherwise than its checkpoint, as a person confirmed",
    )
    handed: Handed | None = Field(None, description="of a stage that a person completes: the work that came back")

    @property
    def artifacts(self) -> Path:
        """Where the stage's results go."""
        return self.out_dir / "artifacts"

    @property
    def plots(self) -> Path:
        """Where the stage's pictures go (SVG or PNG)."""
        return self.out_dir / "plots"

    @property
    def logs(self) -> Path:
        """Where worker output goes."""
        return self.out_dir / "logs"


class Progress(Protocol):
    """How a stage says how far it is. Implementations draw a bar, write JSON lines, or do nothing."""

    def start(self, what: str, total: int | None = None) -> None:
        """A new piece of work of `total` units (null: unknown)."""

    def advance(self, units: int = 1, note: str = "") -> None:
        """`units` more are done; `note` is shown beside the bar."""

    def say(self, text: str) -> None:
        """One line for the person watching."""


class Quiet:
    """A progress that shows nothing."""

    def start(self, what: str, total: int | None = None) -> None:
        """Ignored."""

    def advance(self, units: int = 1, note: str = "") -> None:
        """Ignored."""

    def say(self, text: str) -> None:
        """Ignored."""


class StageResult(Strict):
    """What a stage says beside its files: drops, defaults and fallbacks in words; nothing here is judged."""

    notes: list[str] = Field(default_factory=list)


RunStage = Callable[[StageContext, Progress], StageResult]
"""A stage: writes its artifacts. Raises `Stopped` when asked to stop with everything saved."""
