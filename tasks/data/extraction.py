"""Optional extraction by a language model: for notes in which the rules found no repair. Nothing it says is believed
unless the note says it.

The model sees the masked text. Each sentence of its answer must stand in the text, word for word after normalisation;
what does not is dropped and counted. Without a phenomenon and a repair left, the note stays plain text. The floor above
provides the model (`using`), because nothing here knows providers or keys.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from pydantic import BaseModel, Field

from specs.errors import InputError
from tasks.data.colloquial import Parts
from tasks.data.paragraphs import sentences
from tasks.data.records import Draft


class Extraction(BaseModel):
    """What a maintenance note says, in its own words."""

    phenomenon: str = Field("", description="what was seen to be wrong, copied from the note; empty if it does not say")
    steps: list[str] = Field(
        default_factory=list, description="what was checked and found, in order, copied from the note"
    )
    repair: str = Field("", description="what was done to repair it, copied from the note; empty if it does not say")


Extractor = Callable[[str], Extraction | None]
"""Asks about one text; None when no answer could be had."""

_current: ContextVar[Extractor | None] = ContextVar("extractor", default=None)


@contextmanager
def using(extractor: Extractor) -> Iterator[None]:
    """Let the data stage ask this extractor until the block ends."""
    token = _current.set(extractor)
    try:
        yield
    finally:
        _current.reset(token)


_TOKEN = re.compile(r"[\u3400-\u9fff]|\d+(?:\.\d+)*|[^\W\d\u3400-\u9fff]+")


def tokens(text: str) -> list[str]:
    """Words, numbers and single Chinese characters in NFKC and folded case, without punctuation and space."""
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold().replace("_", " "))


def stands_in(piece: str, text: str) -> bool:
    """Whether all words of a piece stand in a text, one after the other."""
    wanted, found = f" {' '.join(tokens(piece))} ", f" {' '.join(tokens(text))} "
    return bool(wanted.strip()) and wanted in found


def grounded(text: str, extraction: Extraction) -> tuple[Parts, int]:
    """What of an answer stands in the text, and how many of its sentences and steps do not."""
    dropped = 0

    def kept(pieces: list[str]) -> list[str]:
        nonlocal dropped
        good = [piece for piece in pieces if stands_in(piece, text)]
        dropped += len(pieces) - len(good)
        return good

    phenomenon, repair = (" ".join(kept(sentences(part))) for part in (extraction.phenomenon, extraction.repair))
    return Parts(phenomenon, tuple(kept([s.strip() for s in extraction.steps if s.strip()])), repair), dropped


@dataclass(slots=True)
class Asking:
    """Asks about plain notes, and counts what came of it."""

    extractor: Extractor
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def current(cls) -> Asking:
        """With the extractor in use. Raises `InputError` when there is none."""
        extractor = _current.get()
        if extractor is None:
            raise InputError(
                "extraction: llm needs a language model, and none is connected",
                "set agent: {proposer: llm, model: ...}, or extraction: rules",
            )
        return cls(extractor)

    def draft(self, draft: Draft) -> Draft:
        """A plain note as phenomenon, steps and repair where the answer is grounded; every other draft as it is."""
        if draft.kind != "note" or not draft.plain:
            return draft
        self.counts["llm_asked"] += 1
        answer = self.extractor(draft.plain)
        if answer is None:
            self.counts["llm_without_answer"] += 1
            return draft
        parts, dropped = grounded(draft.plain, answer)
        self.counts["llm_pieces_dropped"] += dropped
        if not parts.phenomenon or not parts.repair:
            return draft
        self.counts["llm_structured"] += 1
        return replace(draft, plain="", phenomenon=parts.phenomenon, steps=parts.steps, repair=parts.repair)
