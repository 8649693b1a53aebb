"""A look through the sources before the data stage: how many samples, how long, and which words occur.

The records are read as the data stage reads them; nothing is merged, split or written. Lengths come from a sample
that is spread evenly over the records, and from the records with the most characters.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field

from specs.base import Strict
from specs.parameters import DataParameters
from specs.project import Project
from specs.stages import Quiet
from tasks.data.lengths import measure_many
from tasks.data.reading import read_sources
from tasks.data.records import Draft, Fate
from tasks.data.similarity import normalise
from tasks.data.wording import render
from tasks.prompts import PromptTemplate

SAMPLED = 512
"""Records whose tokens are counted: their mean is within some percent of all."""

LONGEST = 32
"""Records with the most characters, whose tokens are counted for the longest sample."""

MOST_RECORDS = 50_000
"""Records that are looked at; what lies behind them is not, and `complete` says so."""


class Survey(Strict):
    """What a look through the sources found. Tokens are null where there is no tokenizer yet."""

    rows: int = Field(ge=0, description="rows, paragraphs and windows that the data stage will account for")
    distinct: int = Field(ge=0, description="usable records without those that say the same")
    complete: bool = Field(description="false where there are more records than were looked at")
    sampled: int = Field(0, ge=0, description="records whose tokens were counted for the mean")
    mean_tokens: float | None = None
    longest_tokens: int | None = None
    uncovered: list[str] = Field(default_factory=list, description="words that were looked for and occur nowhere")


class _EnoughError(Exception):
    """As many records as are looked at."""


class _Watch:
    """Takes records as they are read, and keeps of them what the survey says."""

    def __init__(self, wanted: Mapping[str, re.Pattern[str]], spec: Project) -> None:
        self.missing = dict(wanted)
        self.language = spec.language
        self.rows, self.every = 0, 1
        self.seen: set[int] = set()
        self.sample: list[Draft] = []
        self.longest: list[tuple[int, int, Draft]] = []

    def take(self, drafts: Sequence[Draft], fates: Sequence[Fate]) -> None:
        """A shard of records. Raises `_EnoughError` past the limit."""
        self.rows += len(fates)
        for draft in drafts:
            self.rows += 1
            self._one(draft)
        if self.rows >= MOST_RECORDS:
            raise _EnoughError

    def _one(self, draft: Draft) -> None:
        content = draft.content()
        text = "\n".join((content, draft.meaning, draft.prompt))
        for word in [w for w, pattern in self.missing.items() if pattern.search(text)]:
            del self.missing[word]
        prompt, answer = render(draft, self.language)
        if not answer.strip():
            return
        before = len(self.seen)
        self.seen.add(hash(normalise(content)))
        if len(self.seen) == before:
            return
        if before % self.every == 0:
            self.sample.append(draft)
        if len(self.sample) >= 2 * SAMPLED:  # half as many, twice as far apart
            del self.sample[1::2]
            self.every *= 2
        entry = (len(draft.system) + sum(map(len, (*draft.earlier, prompt, answer))), -before, draft)
        if len(self.longest) < LONGEST:
            heapq.heappush(self.longest, entry)
        elif entry[:2] > self.longest[0][:2]:
            heapq.heapreplace(self.longest, entry)


def survey(
    project_dir: Path,
    spec: Project,
    base_model: Path | None = None,
    wanted: Mapping[str, re.Pattern[str]] | None = None,
) -> Survey:
    """What the sources hold. `wanted` are words to look for, each with what finds it. Raises `SourceError`."""
    template = PromptTemplate.load(base_model) if base_model is not None else None
    watch, complete = _Watch(wanted or {}, spec), True

    def count(text: str) -> int:
        return len(template.encode("", text).input_ids) if template else len(text.split()) or len(text)

    try:
        read_sources(project_dir, spec, DataParameters(), count, Quiet(), watch.take)
    except _EnoughError:
        complete = False
    found = Survey(
        rows=watch.rows,
        distinct=len(watch.seen),
        complete=complete,
        uncovered=list(watch.missing) if complete else [],
    )
    if template is None or not watch.sample:
        return found
    lengths = [m.n_tokens for m in measure_many(watch.sample, spec.language, template)]
    longest = [m.n_tokens for m in measure_many([d for *_, d in watch.longest], spec.language, template)]
    return found.model_copy(
        update={
            "sampled": len(lengths),
            "mean_tokens": round(sum(lengths) / len(lengths), 1),
            "longest_tokens": max(*lengths, *longest),
        }
    )
