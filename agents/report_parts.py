"""Cells and samples that the reports of several stages share."""

from __future__ import annotations

from agents.blocks import Block, Cell, Heading, Paragraph, Sample
from agents.report_texts import t
from specs.base import Language


def count(value: float) -> Cell:
    """A whole number with thousands separators."""
    return Cell(f"{value:,.0f}", number=True)


def sample_block(title: str, context: str, learnt: str, language: Language, parts: object = None) -> Block:
    """A text as it is fed, with what is learnt marked: `parts` of a recorded sample, else context before an answer."""
    told = [(str(text), bool(learns)) for text, learns in parts] if isinstance(parts, list) else []
    return Sample(
        title, told or [(context, False), (learnt, True)], (t(language, "context_only"), t(language, "learnt"))
    )


def as_fed(samples: list[Block], language: Language) -> list[Block]:
    """Samples under their heading; nothing where there is none."""
    if not samples:
        return []
    return [Heading(t(language, "as_fed")), Paragraph(t(language, "as_fed_legend"), "quiet"), *samples]
