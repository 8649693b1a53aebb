"""What a resumed training has otherwise than when its checkpoint was written, and what of it a person may confirm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import Field

from specs.base import Strict
from specs.words import compared


class Changed(Strict):
    """One setting that differs: a row of the table that stops a resume."""

    what: str = Field(description="dotted name: training.lr, device, versions.torch, ...")
    was: str = Field(description="when the checkpoint was written; - for one that was not there")
    now: str

    @property
    def may_be_confirmed(self) -> bool:
        """Only on what is computed, not what: other samples, weights or settings make it another training."""
        return self.what == "device" or self.what.startswith("versions.")


def table(rows: Sequence[Changed]) -> list[str]:
    """The rows in columns (what, was, now), for messages."""
    return compared(("what", "was", "now"), [(row.what, row.was, row.now) for row in rows])


def unconfirmed(rows: Iterable[Changed], confirmed: Iterable[Changed]) -> list[Changed]:
    """The rows that nobody confirmed as they are: another version than the confirmed one is another row."""
    known = set(confirmed)
    return [row for row in rows if row not in known or not row.may_be_confirmed]
