"""What a stage leaves behind: artifacts, evidence."""

from __future__ import annotations

from pathlib import Path

from pydantic import AwareDatetime, Field

from specs.base import Name, Sha256, Strict
from specs.canonical import sha256_file
from specs.costs import STAGE_SECONDS, Took
from specs.criteria import Metric, Verdict


class Artifact(Strict):
    """A file of an attempt, by its path relative to the attempt's folder (POSIX)."""

    path: str
    bytes: int = Field(ge=0)
    sha256: Sha256


class Evidence(Strict):
    """What a person sees of a finished stage. Written once, into the attempt's folder."""

    schema_version: int = 1
    stage: Name
    attempt: int = Field(ge=1)
    run: str
    gated: bool = Field(True, description="false for a stage that ran outside a run's gates")
    parameters_sha256: Sha256
    inputs: dict[str, Sha256] = Field(description="digest of each input before the stage; checked again after")
    metrics: dict[Name, Metric]
    verdicts: list[Verdict]
    artifacts: list[Artifact]
    notes: list[str] = Field(default_factory=list, description="drops, defaults, fallbacks: counted, in words")
    others_cpu_share: float | None = Field(
        None, ge=0, le=1, description="of the processors' time, used by other programs meanwhile; null: not measured"
    )
    took: list[Took] = Field(
        default_factory=list, description="seconds of the stage and of its training steps, for the next expectations"
    )
    started_at: AwareDatetime
    ended_at: AwareDatetime

    def measured(self, name: str) -> Metric | None:
        """A metric, or what every stage has and no artifact shows; null where it was not measured."""
        if name != STAGE_SECONDS:
            return self.metrics.get(name)
        whole = next((t.wall_s for t in self.took if t.kind == "stage"), None)
        return None if whole is None else Metric(value=round(whole, 3), unit="s")


BUSY = 0.2
"""From this share on, other programs kept the processors so busy that times say little of a quiet machine."""


def list_artifacts(folder: Path, *below: str) -> list[Artifact]:
    """Every file below the named sub-folders of an attempt, sorted by path."""
    files = sorted(p for name in below for p in (folder / name).rglob("*") if p.is_file())
    return [
        Artifact(path=p.relative_to(folder).as_posix(), bytes=p.stat().st_size, sha256=sha256_file(p)) for p in files
    ]
