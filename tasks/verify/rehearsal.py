"""Whether the samples that a rehearsal used are the part that they should be: counted again, by other means."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]


def share_of(context: Mapping[str, Any]) -> float | None:
    """The share of samples that the run rehearses on; None outside a rehearsal."""
    share = (context.get("spec") or {}).get("rehearsal")
    return None if share is None else float(share)


def part_wrong(rows: Iterable[Row], used: set[str], share: float) -> int:
    """Samples too few in the whole and in each kind and fault type, and 1 when none of the longest is among them.

    `rows` are those of the split. A group must have its share, rounded down: so much every fair choice gives it.
    """
    known = {str(row["sample_id"]): row for row in rows}
    mine = [known[i] for i in used if i in known]
    wrong = max(0, math.ceil(share * len(known)) - len(mine))
    groups = Counter((r.get("kind") or "", r.get("fault_type") or "") for r in known.values())
    found = Counter((r.get("kind") or "", r.get("fault_type") or "") for r in mine)
    wrong += sum(max(0, math.floor(share * n) - found[g]) for g, n in groups.items())
    longest = max((int(r["n_tokens"]) for r in known.values()), default=0)
    return wrong + (0 if any(int(r["n_tokens"]) == longest for r in mine) else 1)
