"""What a verifier found, by metric: how often, and the first places in words, so that a person knows where to look."""

from __future__ import annotations

from collections import Counter, defaultdict

CLAIMS = "claims_unfounded"
"""The metric of what the artifacts say of themselves and that does not hold."""
NAMED = 5
"""Places that are named of one metric."""


class Findings:
    """Counts of what is wrong by metric, with the first places of each."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._named: defaultdict[str, list[str]] = defaultdict(list)

    def add(self, metric: str, place: str, what: str) -> None:
        """One more fault of a metric: `what` is wrong at `place`."""
        self.counts[metric] += 1
        if len(self._named[metric]) < NAMED:
            self._named[metric].append(f"{place}: {what}")

    def reason(self, metric: str) -> str:
        """The first places in one line, and how many more there are; empty when nothing was found."""
        named = self._named.get(metric, [])
        more = self.counts[metric] - len(named)
        return "; ".join([*named, *([f"and {more} more"] if more else [])])
