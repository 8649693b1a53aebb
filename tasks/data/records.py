"""What flows through the data stage: a unit of a raw file, the draft of a sample made of it, and the unit's fate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tasks.data.joins import Joined
from tasks.turns import Turn, Turns

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
    """One sample in the making. `plain` is running text, or the answer to `prompt`; `group` ties samples of one event.

    `earlier` are the turns of a conversation before `prompt`: question, answer, question, answer. The first `unlearnt`
    of these answers are only read, and so are those numbered in `silent`. `system` is what the model is told to be.
    `left_out` messages of the record are in no sample: read behind the last answer that is learnt, or dropped.

    `date` is the text of a cell, read only for a split by time; `people` are names that columns of the row hold.
    """

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
    system: str = ""
    earlier: tuple[str, ...] = ()
    unlearnt: int = 0
    silent: tuple[int, ...] = ()
    left_out: int = 0
    group: str = ""
    date: str = ""
    people: tuple[str, ...] = ()
    part: int = 0
    cut_tokens: int = 0

    def content(self) -> str:
        """What the sample says, without the words of the prompt: the text in which duplicates are looked for.

        A conversation says all its turns. Its system text is left out: records that share one would all be alike.
        """
        if self.plain:
            return "\n".join((*self.earlier, self.prompt, self.plain)) if self.prompt else self.plain
        return "\n".join(
            part for part in (self.device_model, self.fault_type, self.phenomenon, *self.steps, self.repair) if part
        )

    def spoken(self) -> bool:
        """Whether it is a question with its answer as somebody wrote them, alone or at the end of a conversation."""
        return bool(self.plain and self.prompt)

    def turns(self) -> Turns:
        """What stands before the question."""
        return turns_before(self.system, self.earlier, self.unlearnt, self.silent)


def turns_before(system: str, earlier: Sequence[str], unlearnt: int, silent: Collection[int] = ()) -> Turns:
    """The turns of a draft's fields of these names."""
    said = (
        Turn("assistant", text, number // 2 >= unlearnt and number // 2 not in silent)
        if number % 2
        else Turn("user", text)
        for number, text in enumerate(earlier)
    )
    return (*((Turn("system", system),) if system else ()), *said)


@dataclass(frozen=True, slots=True)
class Fate:
    """Where a unit ended. `merged_into` is `source|location` of the unit that stays."""

    unit: Unit
    fate: FateName
    reason: str = ""
    merged_into: str = ""


Sink = Callable[[Sequence[Draft], Sequence[Fate]], None]
"""Takes drafts and fates in the order of reading, a shard at a time."""

SHARD_ROWS = 16_384
"""Drafts and fates of a shard: what is in memory while sources are read, and what an interruption can cost."""


class Drafts(list[Draft]):
    """The drafts of an intake that has a sink: once a shard is full, it goes there and the list begins anew.

    Fault codes wait for what follows them, because a later table can still take them back.
    """

    def __init__(self, intake: Intake, drafts: Iterable[Draft] = ()) -> None:
        super().__init__(drafts)
        self.intake = intake

    def append(self, draft: Draft) -> None:
        """Add a draft; a full shard goes to the sink."""
        super().append(draft)
        if len(self) + len(self.intake.fates) >= SHARD_ROWS and draft.kind != "fault_code":
            self.intake.flush()

    def extend(self, drafts: Iterable[Draft]) -> None:
        """Add drafts one by one."""
        for draft in drafts:
            self.append(draft)


@dataclass(slots=True)
class Intake:
    """What reading the sources brings: drafts, units that already have a fate, and everything counted on the way.

    With a `sink`, drafts and fates pass through in shards, and `models` remembers the machines that they name.
    """

    drafts: list[Draft] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)
    sink: Sink | None = None
    models: set[str] = field(default_factory=set)
    decoding: list[dict[str, Any]] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)
    sensor_logs: list[dict[str, Any]] = field(default_factory=list)
    joins: dict[str, Joined] = field(default_factory=dict)
    doubled_codes: list[str] = field(default_factory=list)
    paragraphs: list[Unit] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    sheets_not_read: list[str] = field(default_factory=list)
    keys_not_read: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        if self.sink is not None:
            self.drafts = Drafts(self, self.drafts)

    def drop(self, unit: Unit, fate: FateName, reason: str) -> None:
        """Give a unit its final fate."""
        self.fates.append(Fate(unit, fate, reason))
        waiting = bool(self.drafts) and self.drafts[-1].kind == "fault_code"
        if self.sink is not None and len(self.fates) >= SHARD_ROWS and not waiting:
            self.flush()

    def known_models(self) -> set[str]:
        """The machines that work orders and fault codes name."""
        here = {d.device_model for d in self.drafts if d.kind in ("work_order", "fault_code")}
        return (here | self.models) - {""}

    def flush(self) -> None:
        """Hand what is here to the sink and begin anew."""
        if self.sink is None:
            return
        self.models = self.known_models()
        drafts, fates = list(self.drafts), list(self.fates)
        self.drafts.clear()
        self.fates.clear()
        if drafts or fates:
            self.sink(drafts, fates)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A raw file: `name` is its path relative to the project (POSIX), `path` where it lies."""

    name: str
    path: Path
