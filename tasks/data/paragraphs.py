"""Manuals into paragraphs of similar length, cut at sentence ends; headings kept, lists and rows unbroken. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tasks.data.blocks import Block

_CLOSERS = "\"'”’」』）)】\\]"
_SENTENCE = re.compile(
    rf"(?:[。！？；](?![{_CLOSERS}]*[。！？；，、：])[{_CLOSERS}]*\s*|[.!?…][{_CLOSERS}]*\s+(?=[A-Z0-9\"'“‘(\[`*\u4e00-\u9fff]))(?=\S)"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|approx|nos?|nr|figs?|tab|eqs?|sec|secs|ch|chap|pp?|vol|rev|art|max|min|vs|etc|cf|ca|incl|excl|dia|"
    r"resp|mr|mrs|ms|dr|prof|st|co|ltd|inc|dept|est|temp|pos|ref|qty|dwg|mfg|assy|approx|ser|mod|spec|typ|nom)|\b(?-i:[A-Z]))\.$"
    r"|^[(（]?(?:\d{1,2}|[A-Za-z])[.)）]$",
    re.IGNORECASE,
)
"""What ends in a full stop and ends no sentence; or a list number that stands alone before its item."""
LONG_ITEM = 1.5
"""A list item above this many targets is running prose behind a bullet: it is cut at its sentence ends."""
HEADING_BONUS = 0.15
"""Share of the squared target by which a cut in front of a heading is cheaper than one inside a section."""


@dataclass(frozen=True, slots=True)
class Atom:
    """A piece that is never cut: a sentence, a list or list item, a table row. `heading` is the path above it.

    Pieces that were `recognised` from pictures and pieces of digital text are never in one paragraph.
    """

    text: str
    tokens: int
    heading: tuple[str, ...]
    page: int
    starts_section: bool
    glue: str
    header: str = ""
    recognised: bool = False


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A run of atoms. `context` (headings, table header) stands above it in the sample and is not part of the unit."""

    text: str
    context: str
    page: int

    def sample_text(self) -> str:
        """What is trained on."""
        return f"{self.context}\n{self.text}" if self.context else self.text


def cut(blocks: Sequence[Block], target: int, count: Callable[[str], int]) -> list[Paragraph]:
    """Paragraphs near `target` tokens from the blocks of one document (furniture and empty pages left out).

    Minimises the sum of (tokens - target)^2 over all ways to cut between atoms, by dynamic programming.
    """
    atoms = list(_atoms(blocks, target, count))
    if not atoms:
        return []
    return [_paragraph(atoms[start:end]) for start, end in _cuts(atoms, target, count)]


def _atoms(blocks: Sequence[Block], target: int, count: Callable[[str], int]) -> Iterator[Atom]:
    path: list[tuple[int, str]] = []
    pending: list[str] = []
    above: tuple[str, ...] = ()
    last = blocks[0] if blocks else None
    for block in blocks:
        if pending and last and last.recognised != block.recognised:
            yield _headings(pending, above, last, count)
            pending = []
        last = block
        if block.kind == "heading":
            if not pending:
                above = tuple(title for level, title in path if level < block.level)
            path = [(level, title) for level, title in path if level < block.level]
            path.append((block.level, _title(block.text)))
            pending.append(block.text)
            continue
        here = tuple(title for _, title in path)
        for number, (piece, glue, header) in enumerate(_pieces(block, target, count)):
            starts = bool(pending) and number == 0
            text = "\n".join([*pending, piece]) if starts else piece
            heading = above if starts else here
            yield Atom(text, count(text), heading, block.page, starts, glue, header, block.recognised)
            pending = []
    if pending and last:
        yield _headings(pending, above, last, count)


def _headings(pending: Sequence[str], above: tuple[str, ...], last: Block, count: Callable[[str], int]) -> Atom:
    """Headings with nothing below them."""
    text = "\n".join(pending)
    return Atom(text, count(text), above, last.page, True, "\n", recognised=last.recognised)


def _title(text: str) -> str:
    return re.sub(r"^#+\s*", "", text)


def _pieces(block: Block, target: int, count: Callable[[str], int]) -> Iterator[tuple[str, str, str]]:
    """(text, what joins it to the piece before it, table header above it) of a block."""
    if block.kind == "text":
        for number, sentence in enumerate(sentences(block.text)):
            yield sentence, "\n" if number == 0 else _space_before(sentence), ""
        return
    lines = block.text.split("\n")
    if count(block.text) <= 1.25 * target:
        yield block.text, "\n", ""
        return
    header = lines[0] if block.kind == "table" else ""
    for number, line in enumerate(lines):
        if block.kind == "list" and count(line) > LONG_ITEM * target:
            for part, sentence in enumerate(sentences(line)):
                yield sentence, "\n" if part == 0 else _space_before(sentence), ""
        else:
            yield line, "\n", header if number else ""


def _space_before(sentence: str) -> str:
    """Chinese sentences follow each other without a space."""
    return "" if sentence[0] > "\u2fff" else " "


def sentences(text: str) -> list[str]:
    """Sentences of Chinese and English text, with the quotes and brackets that close them.

    No cut after an abbreviation (`No. 5`), a list number or inside a number (`3.5`), and none where a quoted sentence
    goes on (`“停机。”，然后`).
    """
    return [text[start:end] for start, end in sentence_places(text)]


def sentence_places(text: str) -> list[tuple[int, int]]:
    """Where each sentence of a text begins and ends, without the white space around it."""
    places: list[tuple[int, int]] = []
    start = 0
    for end in [*(match.end() for match in _SENTENCE.finditer(text)), len(text)]:
        part = text[start:end]
        first = start + len(part) - len(part.lstrip())
        last = first + len(part.strip())
        start = end
        if places and first < last and _ABBREVIATION.search(text[slice(*places[-1])]):
            places[-1] = (places[-1][0], last)
        elif first < last:
            places.append((first, last))
    return places


def _cuts(atoms: Sequence[Atom], target: int, count: Callable[[str], int]) -> list[tuple[int, int]]:
    overhead = [count(_context(atom)) for atom in atoms]
    best = [0.0] + [float("inf")] * len(atoms)
    back = [0] * (len(atoms) + 1)
    for end in range(1, len(atoms) + 1):
        size = 0
        for start in range(end - 1, -1, -1):
            if atoms[start].recognised != atoms[end - 1].recognised:
                break
            size += atoms[start].tokens
            length = size + overhead[start]
            bonus = HEADING_BONUS * target * target if atoms[start].starts_section else 0.0
            cost = best[start] + (length - target) ** 2 - bonus
            if cost < best[end]:
                best[end], back[end] = cost, start
            if length > 3 * target:
                break
    spans: list[tuple[int, int]] = []
    end = len(atoms)
    while end:
        spans.append((back[end], end))
        end = back[end]
    return spans[::-1]


def _context(atom: Atom) -> str:
    return "\n".join(part for part in (" > ".join(atom.heading), atom.header) if part)


def _paragraph(atoms: Sequence[Atom]) -> Paragraph:
    text = atoms[0].text
    for atom in atoms[1:]:
        text += ("\n" if atom.starts_section else atom.glue) + atom.text
    return Paragraph(text, _context(atoms[0]), atoms[0].page)
