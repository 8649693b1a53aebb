"""Work orders joined with fault-code tables, many to one: what was found, what was not, and keys that are no keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specs.errors import SourceError

_MOST_CODES = 10_000
"""Different unmatched codes that are counted by name per file; above, a column of free text was mapped to the code."""
_MOST_NAMED = 20


@dataclass(slots=True)
class Joined:
    """How the rows of one file found their code."""

    with_code: int = 0
    matched: int = 0
    unmatched: Counter[str] = field(default_factory=Counter)
    unnamed: int = 0

    def count(self, code: str, found: bool) -> None:
        """One row that names a code."""
        self.with_code += 1
        self.matched += found
        if found:
            return
        if code in self.unmatched or len(self.unmatched) < _MOST_CODES:
            self.unmatched[code] += 1
        else:
            self.unnamed += 1

    def summary(self) -> dict[str, Any]:
        """As it stands in `summary.json`, the most frequent unmatched codes first."""
        ranked = sorted(self.unmatched.items(), key=lambda item: (-item[1], item[0]))
        named = dict(ranked[:_MOST_NAMED])
        others = sum(n for _, n in ranked[_MOST_NAMED:]) + self.unnamed
        return {"with_code": self.with_code, "matched": self.matched, "unmatched": named, "unmatched_others": others}


def refuse_doubled(name: str, doubled: Mapping[str, Sequence[str]]) -> None:
    """Raises `SourceError` that names every code with two contents, and where its rows are."""
    listed = [f"{code} ({', '.join(places[:5])})" for code, places in sorted(doubled.items())]
    more = f" and {len(listed) - _MOST_NAMED} more" if len(listed) > _MOST_NAMED else ""
    raise SourceError(
        f"{name}: {len(listed)} codes stand twice with different contents: {', '.join(listed[:_MOST_NAMED])}{more}",
        "keep one row of each code, map device_model if they belong to different machines, or set doubled_codes: "
        "quarantine",
    )
