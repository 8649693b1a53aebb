"""A trace as a list of births and deaths of storages, and its replay: peaks by place, with who was resident."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Resident = Literal[
    "weights", "gradients", "optimizer_states", "activations", "temporary", "kv_cache", "gathered", "communication"
]
"""What a trace tells apart, the last two where ranks share work; an account adds `framework`."""


class Place(NamedTuple):
    """Where in a step: a phase, and the layer from the front (0, 1, ...) or from the back (-1, -2, ...).

    `layer` is null outside the layers; `part` then says before or after them.
    """

    phase: str
    part: str
    layer: int | None = None


@dataclass
class Peak:
    """The most bytes at one place and what they were."""

    total: int = 0
    residents: dict[str, int] = field(default_factory=dict)


@dataclass
class Timeline:
    """Births (`n`), deaths (`~n`) and moves to another place, in order. Storage `n` has `sizes[n]` bytes."""

    sizes: list[int] = field(default_factory=list)
    kinds: dict[int, Resident] = field(default_factory=dict)
    events: list[int | Place] = field(default_factory=list)
    accumulated: list[tuple[int, int]] = field(default_factory=list)
    """(number of events before, storage) at which a gradient became its parameter's."""
    products: list[tuple[str, int]] = field(default_factory=list)
    """(phase, floating-point operations) of every matrix product."""
    streams: dict[int, str] = field(default_factory=dict)
    """The stream of a storage that was not allocated in the one that computes: its memory comes from another pool."""

    def born(self, size: int) -> int:
        """A new storage; returns its number."""
        self.sizes.append(size)
        self.events.append(len(self.sizes) - 1)
        return len(self.sizes) - 1

    def died(self, number: int) -> None:
        """A storage was freed."""
        self.events.append(~number)

    def move(self, place: Place) -> None:
        """What follows happens at `place`."""
        self.events.append(place)


def outliving(timeline: Timeline, born_in: str, until: str) -> set[int]:
    """Storages born in one phase that are still alive when another begins: what forward keeps for backward."""
    kept: set[int] = set()
    alive: set[int] = set()
    phase = ""
    for event in timeline.events:
        if isinstance(event, Place):
            if event.phase == until and phase != until:
                kept |= alive
                alive = set()
            phase = event.phase
        elif event >= 0:
            if phase in born_in.split("+"):
                alive.add(event)
        else:
            alive.discard(~event)
    return kept


def accumulating(timeline: Timeline) -> Timeline:
    """The same micro batch after an earlier one of its step: from its forward pass on every gradient is there already,
    a new one is added to it and dies. `timeline` is that of the first micro batch, where new gradients stay."""
    stay = {number: at for at, number in timeline.accumulated}
    dying: dict[int, list[int]] = {}
    for number, at in stay.items():
        dying.setdefault(at, []).append(number)
    result = Timeline(list(timeline.sizes), {**timeline.kinds, **dict.fromkeys(stay, "temporary")})
    there = False
    for index, event in enumerate(timeline.events):
        for number in dying.pop(index, ()):
            result.died(number)
        if isinstance(event, Place) and event.phase == "forward" and not there:
            there = True
            for number in stay:
                result.kinds[result.born(timeline.sizes[number])] = "gradients"
        if isinstance(event, Place) or event >= 0 or ~event not in stay:
            result.events.append(event)
    return result


def peaks(timeline: Timeline, rounding: int) -> dict[Place, Peak]:
    """The peak of every place, storages rounded up to `rounding` bytes. A place begins with what is alive then."""
    result: dict[Place, Peak] = {}
    now: dict[str, int] = defaultdict(int)
    total, place = 0, Place("build", "model")

    def note() -> None:
        peak = result.setdefault(place, Peak())
        if total > peak.total:
            peak.total, peak.residents = total, dict(now)

    for event in timeline.events:
        if isinstance(event, Place):
            place = event
        else:
            number, sign = (event, 1) if event >= 0 else (~event, -1)
            size = -(-timeline.sizes[number] // rounding) * rounding * sign
            now[timeline.kinds.get(number, "temporary")] += size
            total += size
        note()
    return result
