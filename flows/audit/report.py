"""The answer of an audit: numbered steps in three parts, each passed or not, each saying what it saw."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from specs.base import Strict

_SHOWN = 5


class Step(Strict):
    """One check. `detail` says what was seen, what is wrong, or what could not be verified."""

    n: int
    check: str
    ok: bool
    detail: str


class Part(Strict):
    """Integrity, completeness or authority."""

    ok: bool
    steps: list[Step]


class AuditReport(Strict):
    """The whole answer. `ok` without an anchor means self-consistent, not more."""

    integrity: Part
    completeness: Part
    authority: Part
    ok: bool = Field(description="every step of every part passed")


class Checks:
    """Collects the steps of one part in order."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def add(self, check: str, faults: Sequence[str], seen: str) -> None:
        """A step that passes when there is no fault; `seen` is its detail then."""
        detail = seen
        if faults:
            more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
            detail = "; ".join(faults[:_SHOWN]) + more
        self.steps.append(Step(n=len(self.steps) + 1, check=check, ok=not faults, detail=detail))

    def part(self) -> Part:
        """The finished part."""
        return Part(ok=all(step.ok for step in self.steps), steps=self.steps)
