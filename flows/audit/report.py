"""The answer of an audit: numbered steps in three parts, each passed or not, each saying what it saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from specs.base import Strict
from specs.words import harmless

_SHOWN = 5

Verified = Literal["all", "part", "none"]


class Step(Strict):
    """One check. `detail` says what was seen, what is wrong, and what could not be verified."""

    n: int
    check: str
    ok: bool = Field(description="no fault was found in what could be verified")
    verified: Verified = Field("all", description="whether the step could look at all, a part or none of its matter")
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
    ok: bool = Field(description="no step of any part found a fault; steps that could not look say so in `verified`")

    @property
    def parts(self) -> dict[str, Part]:
        """The three parts by name, in order."""
        return {"integrity": self.integrity, "completeness": self.completeness, "authority": self.authority}


class Checks:
    """Collects the steps of one part in order."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def add(self, check: str, faults: Sequence[str], seen: str, unverified: Sequence[str] = ()) -> None:
        """A step that passes when there is no fault; `seen` is its detail then, and what it could not verify."""
        detail = _some(faults) if faults else seen
        if unverified:
            detail += "; not verified: " + _some(unverified)
        verified: Verified = "part" if unverified else "all"
        self._step(check, not faults, verified, detail)

    def skip(self, check: str, why: str) -> None:
        """A step that could look at nothing: said, and no reason to fail."""
        self._step(check, True, "none", f"not verified: {why}")

    def _step(self, check: str, ok: bool, verified: Verified, detail: str) -> None:
        number = len(self.steps) + 1
        self.steps.append(Step(n=number, check=check, ok=ok, verified=verified, detail=visible(detail)))

    def part(self) -> Part:
        """The finished part."""
        return Part(ok=all(step.ok for step in self.steps), steps=self.steps)


def visible(text: str) -> str:
    """One line in which nothing hides: line ends as ` / `, what cannot be seen (or steers a terminal) by its code."""
    return harmless(" / ".join(text.splitlines()))


def _some(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more
