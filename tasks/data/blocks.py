"""What a document is made of: headings, running text, lists and tables, with the page each is on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tasks.data.encoding import visible

BlockKind = Literal["heading", "text", "list", "table", "furniture", "no_text"]


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a document. A table has one line per row, cells separated by tabs. `page` is 1-based, 0 without.

    `furniture` is what stands on every page (running headers, footers, navigation); `no_text` a page without text;
    `recognised` what was read from a picture.
    """

    kind: BlockKind
    text: str
    level: int = 0
    page: int = 0
    recognised: bool = False


@dataclass(slots=True)
class Document:
    """The blocks of a file and what reading counted. `ocr_pages` are the pages whose text was recognised."""

    blocks: list[Block] = field(default_factory=list)
    encoding: str = ""
    found_by: str = ""
    characters_in: int = 0
    replaced: int = 0
    ocr_pages: list[int] = field(default_factory=list)
    noticed: Counter[str] = field(default_factory=Counter)

    @property
    def characters_out(self) -> int:
        """Visible characters in all blocks."""
        return sum(visible(block.text) for block in self.blocks)


_NUMBERED_HEADING = re.compile(
    r"^(?:(\d{1,2}(?:\.\d{1,2}){0,3})\.?\s+(?=[A-Z\u3400-\u9fff])|第[一二三四五六七八九十\d]+[章节]\s*|附录\s*\w|Appendix\s+\w)"
)
LIST_ITEM = re.compile(r"^\s*(?:[-*•·▪●]\s+|\(?\d{1,2}[.)、）]\s*(?=\S)|[①-⑳]|[a-z]\)\s)")
_SENTENCE_END = re.compile(r"[.!?。！？；;:：]$")
_CJK = re.compile(r"[\u3000-\u303f\u3400-\u9fff\uff00-\uffef]")


def lines_to_blocks(lines: Sequence[str], page: int = 0) -> Iterator[Block]:
    """Blocks of plain lines: numbered headings, lists, and paragraphs that run over line ends."""
    pending: list[str] = []
    kind: BlockKind = "text"
    for line in [*lines, ""]:
        stripped = line.strip()
        heading = is_heading(stripped)
        item = bool(LIST_ITEM.match(stripped)) and not heading
        wraps = kind == "list" and stripped and not item and pending and not _SENTENCE_END.search(pending[-1])
        starts = not stripped or heading or (item != (kind == "list") and not wraps)
        if starts and pending:
            yield Block(kind, join_lines(pending) if kind == "text" else "\n".join(pending), page=page)
            pending = []
        if heading:
            yield Block("heading", stripped, heading, page)
        elif stripped:
            kind = "list" if item or wraps else "text"
            if wraps:
                pending[-1] = join_lines([pending[-1], stripped])
            else:
                pending.append(stripped)
        else:
            kind = "text"


def is_heading(line: str) -> int:
    """Level of a numbered heading line, 0 for other lines. Short, numbered, and not ended like a sentence."""
    match = _NUMBERED_HEADING.match(line)
    if not match or len(line) > 60 or _SENTENCE_END.search(line) or "，" in line:
        return 0
    number = match.group(1)
    if number and "." not in number and line[len(number) : len(number) + 1] == ".":
        return 0  # "1. Open the cover" is a list item, "1 Safety" a heading
    return number.count(".") + 1 if number else 1


def join_lines(lines: Sequence[str]) -> str:
    """Wrapped lines as one: with a space, or without one between two Chinese characters."""
    text = ""
    for line in (part.strip() for part in lines):
        if text and line:
            text += "" if _CJK.match(text[-1]) or _CJK.match(line[0]) else " "
        text += line
    return text
