"""The stages of a run as a directed acyclic graph: which gate opens when, what a rework makes obsolete. Pure.

A gate is named after the stage it leads to; the last one is `release`. A run without stages of its own is the line of
the built-in ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from specs.metrics import STAGES

RELEASE = "release"


class CycleError(ValueError):
    """Stages wait for each other in a ring; `ring` names them, the first one again at the end."""

    def __init__(self, ring: Sequence[str]) -> None:
        super().__init__(" -> ".join(ring))
        self.ring = tuple(ring)


@dataclass(frozen=True)
class StageGraph:
    """`stages` in an order in which each comes after all that it waits for.

    `before` maps a gate, the release too, to the stages that must be done before it opens: the nearest ones only.
    """

    stages: tuple[str, ...]
    before: Mapping[str, tuple[str, ...]]

    @classmethod
    def line(cls, stages: Sequence[str]) -> StageGraph:
        """Each stage after the one before it."""
        order = (*stages, RELEASE)
        return cls(tuple(stages), {gate: order[max(0, i - 1) : i] for i, gate in enumerate(order)})

    @classmethod
    def recorded(cls, stages: Sequence[str], edges: Mapping[str, Sequence[str]]) -> StageGraph:
        """The graph that a run recorded. Without edges it is a line; an edge that leads back or nowhere is inert."""
        names = tuple(dict.fromkeys(s for s in stages if s != RELEASE))
        if not edges:
            return cls.line(names)
        order = (*names, RELEASE)
        place = {name: i for i, name in enumerate(order)}
        line = cls.line(names).before
        return cls(
            names,
            {
                gate: tuple(s for s in dict.fromkeys(edges[gate]) if place.get(s, len(order)) < place[gate])
                if gate in edges
                else line[gate]
                for gate in order
            },
        )

    @property
    def order(self) -> tuple[str, ...]:
        """The gates in order: one before each stage, then the release gate."""
        return (*self.stages, RELEASE)

    @property
    def edges(self) -> dict[str, list[str]]:
        """As an event stores it; empty for a line."""
        line = StageGraph.line(self.stages)
        return {} if dict(line.before) == dict(self.before) else {g: list(self.before[g]) for g in self.order}

    @cached_property
    def _after(self) -> dict[str, tuple[str, ...]]:
        return {s: tuple(g for g in self.order if s in self.before[g]) for s in self.order}

    def after(self, stage: str) -> tuple[str, ...]:
        """The gates that wait for a stage, directly."""
        return self._after.get(stage, ())

    def ancestors(self, gate: str) -> tuple[str, ...]:
        """Every stage that must be done before a gate opens, in order."""
        found: set[str] = set()
        left = list(self.before.get(gate, ()))
        while left:
            if (stage := left.pop()) not in found:
                found.add(stage)
                left += self.before.get(stage, ())
        return tuple(s for s in self.order if s in found)

    def descendants(self, stage: str) -> tuple[str, ...]:
        """Every gate that comes to stand on a stage, in order."""
        found: set[str] = set()
        left = list(self.after(stage))
        while left:
            if (gate := left.pop()) not in found:
                found.add(gate)
                left += self.after(gate)
        return tuple(g for g in self.order if g in found)

    def from_on(self, gate: str) -> tuple[str, ...]:
        """A gate and everything that stands on it, in order: what going back to it does again."""
        return (gate, *self.descendants(gate))


BUILT_IN = StageGraph.line(STAGES)


def stage_name_problem(name: str) -> str:
    """Why a stage cannot have this name, with the way out; empty where it can."""
    if name in (*STAGES, RELEASE):
        return f"{name!r} is a stage already; choose another name"
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,62}", name):
        return f"{name!r} cannot name a stage; use lower-case letters, digits and _, beginning with a letter"
    return ""


def sorted_graph(waits: Mapping[str, Iterable[str]], priority: Sequence[str]) -> StageGraph:
    """The graph of stages that wait for each other; `priority` says who comes first where nothing else does.

    Edges that follow from others are left out, and the release waits for whatever nothing else waits for. Raises
    `CycleError`. Every stage that is waited for must be a key of `waits`.
    """
    rank = {name: i for i, name in enumerate(priority)}
    needs = {stage: set(others) for stage, others in waits.items()}
    order: list[str] = []
    while len(order) < len(needs):
        ready = [s for s in needs if s not in order and needs[s] <= set(order)]
        if not ready:
            raise CycleError(_ring({s: n - set(order) for s, n in needs.items() if s not in order}))
        order.append(min(ready, key=lambda s: (rank.get(s, len(rank)), s)))
    reach: dict[str, set[str]] = {}
    before: dict[str, tuple[str, ...]] = {}
    for stage in order:
        implied = {far for near in needs[stage] for far in reach[near]}
        before[stage] = tuple(s for s in order if s in needs[stage] - implied)
        reach[stage] = needs[stage] | implied
    waited_for = {s for found in before.values() for s in found}
    before[RELEASE] = tuple(s for s in order if s not in waited_for)
    return StageGraph(tuple(order), before)


def _ring(needs: Mapping[str, set[str]]) -> list[str]:
    """One ring among stages none of which can begin; begun at the smallest name, so that it is always the same."""
    path: list[str] = [min(needs)]
    while True:
        following = min(s for s in needs[path[-1]] if s in needs)
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)
