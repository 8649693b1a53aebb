"""What flows through the data stage: a unit of a raw file, the draft of a sample made of it, and the unit's fate."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Kind = Literal["work_order", "fault_code", "manual", "note", "sensor", "instruction"]
FateName = Literal["kept", "merged", "quarantined", "out_of_scope"]


@dataclass(frozen=True, slots=True)
class Unit:
    """A row, paragraph or window of a raw file. `location` ends in `#N`; `original` is its text as it was read."""

    source: str
    location: str
    original: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the unit within a project."""
        return self.source, self.location


@dataclass(frozen=True, slots=True)
class Draft:
    """One sample in the making. `plain` is running text without a prompt; `group` ties samples of one event."""

    unit: Unit
    kind: Kind
    device_model: str = ""
    phenomenon: str = ""
    steps: tuple[str, ...] = ()
    repair: str = ""
    fault_type: str = ""
    meaning: str = ""
    prompt: str = ""
    plain: str = ""
    group: str = ""
    part: int = 0
    cut_tokens: int = 0

    def content(self) -> str:
        """What the sample says, without the words of the prompt: the text in which duplicates are looked for."""
        if self.plain:
            return f"{self.prompt}\n{self.plain}" if self.prompt else self.plain
        return "\n".join(
            part for part in (self.device_model, self.fault_type, self.phenomenon, *self.steps, self.repair) if part
        )


@dataclass(frozen=True, slots=True)
class Fate:
    """Where a unit ended. `merged_into` is `source|location` of the unit that stays."""

    unit: Unit
    fate: FateName
    reason: str = ""
    merged_into: str = ""


@dataclass(slots=True)
class Intake:
    """What reading the sources brings: drafts, units that already have a fate, and everything counted on the way."""

    drafts: list[Draft] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)
    decoding: list[dict[str, Any]] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)
    sensor_logs: list[dict[str, Any]] = field(default_factory=list)
    paragraphs: list[Unit] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    sheets_not_read: list[str] = field(default_factory=list)

    def drop(self, unit: Unit, fate: FateName, reason: str) -> None:
        """Give a unit its final fate."""
        self.fates.append(Fate(unit, fate, reason))


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A raw file: `name` is its path relative to the project (POSIX), `path` where it lies."""

    name: str
    path: Path
