"""Documents as a sequence of blocks: headings, running text, lists and tables, with the page each is on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from specs.errors import SourceError
from tasks.data.encoding import decode, visible
from tasks.data.files import MAX_PDF_PAGES, read_bytes
from tasks.data.records import SourceFile

BlockKind = Literal["heading", "text", "list", "table", "furniture", "no_text"]


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a document. A table has one line per row, cells separated by tabs. `page` is 1-based, 0 without."""

    kind: BlockKind
    text: str
    level: int = 0
    page: int = 0


@dataclass(slots=True)
class Document:
    """The blocks of a file and what reading counted."""

    blocks: list[Block] = field(default_factory=list)
    encoding: str = ""
    found_by: str = ""
    characters_in: int = 0
    replaced: int = 0

    @property
    def characters_out(self) -> int:
        """Visible characters in all blocks."""
        return sum(visible(block.text) for block in self.blocks)


_NUMBERED_HEADING = re.compile(
    r"^(?:(\d{1,2}(?:\.\d{1,2}){0,3})\.?\s+(?=[A-Z\u3400-\u9fff])|第[一二三四五六七八九十\d]+[章节]\s*|附录\s*\w|Appendix\s+\w)"
)
_LIST_ITEM = re.compile(r"^\s*(?:[-*•·▪●]\s+|\(?\d{1,2}[.)、）]\s*(?=\S)|[①-⑳]|[a-z]\)\s)")
_SENTENCE_END = re.compile(r"[.!?。！？；;:：]$")
_CJK = re.compile(r"[\u3000-\u303f\u3400-\u9fff\uff00-\uffef]")


def read_document(file: SourceFile, declared: str = "auto") -> Document:
    """The blocks of a PDF, DOCX, Markdown or text file. Raises `SourceError` when it cannot be read."""
    name = file.name.lower()
    if name.endswith(".pdf"):
        return _read_pdf(file)
    if name.endswith(".docx"):
        return _read_docx(file)
    decoded = decode(read_bytes(file), file.name, declared)
    document = Document(
        encoding=decoded.encoding,
        found_by=decoded.found_by,
        characters_in=visible(decoded.text),
        replaced=decoded.text.count("\ufffd"),
    )
    lines = decoded.text.split("\n")
    document.blocks = list(_markdown(lines) if name.endswith((".md", ".markdown")) else lines_to_blocks(lines))
    return document


def _markdown(lines: Sequence[str]) -> Iterator[Block]:
    pending: list[str] = []
    kind: BlockKind = "text"

    def flush() -> Iterator[Block]:
        nonlocal pending
        if pending:
            yield Block(kind, join_lines(pending) if kind == "text" else "\n".join(pending))
        pending = []

    for line in lines:
        stripped = line.strip()
        heading = re.match(r"^(#{1,6})\s+", stripped)
        if not stripped or heading:
            yield from flush()
            kind = "text"
            if heading:
                yield Block("heading", stripped, len(heading.group(1)))
            continue
        this: BlockKind = "table" if stripped.startswith("|") else "list" if _LIST_ITEM.match(line) else "text"
        continues = this == "text" and kind == "list" and pending and line[0].isspace()
        if pending and this != kind and not continues:
            yield from flush()
        if not continues:
            kind = this
        pending.append(stripped)
    yield from flush()


def lines_to_blocks(lines: Sequence[str], page: int = 0) -> Iterator[Block]:
    """Blocks of plain lines: numbered headings, lists, and paragraphs that run over line ends."""
    pending: list[str] = []
    kind: BlockKind = "text"
    for line in [*lines, ""]:
        stripped = line.strip()
        heading = is_heading(stripped)
        item = bool(_LIST_ITEM.match(stripped)) and not heading
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


def _read_docx(file: SourceFile) -> Document:
    import docx
    from docx.table import Table
    from docx.text.paragraph import Paragraph

    try:
        opened = docx.Document(str(file.path))
        document = Document(encoding="docx", found_by="file format")
        for item in opened.iter_inner_content():
            if isinstance(item, Paragraph):
                document.blocks.extend(_docx_paragraph(item, document.blocks))
            elif isinstance(item, Table):
                rows = ["\t".join(_docx_cells(row)) for row in item.rows]
                document.blocks.append(Block("table", "\n".join(rows)))
    except Exception as error:  # zip, XML and DOCX layers raise types of their own: a user needs one message
        raise SourceError(
            f"{file.name} is not a readable DOCX file: {error or type(error).__name__}", "save it again as DOCX"
        ) from error
    document.characters_in = document.characters_out
    return document


def _docx_cells(row: Any) -> list[str]:
    """Texts of the cells of a table row; a merged cell counts once."""
    seen: list[Any] = []
    texts = []
    for cell in row.cells:
        if cell._tc not in seen:
            seen.append(cell._tc)
            texts.append(" ".join(cell.text.split()))
    return texts


def _docx_paragraph(item: Any, blocks: list[Block]) -> Iterator[Block]:
    text = " ".join(item.text.split())
    if not text:
        return
    style = (item.style.name or "") if item.style is not None else ""
    level = re.match(r"(?:Heading|标题)\s*(\d)", style)
    if level or style == "Title":
        yield Block("heading", text, int(level.group(1)) if level else 1)
    elif style.startswith("List") or _LIST_ITEM.match(text):
        if blocks and blocks[-1].kind == "list":
            text = blocks.pop().text + "\n" + text
        yield Block("list", text)
    else:
        yield Block("text", text)


def _read_pdf(file: SourceFile) -> Document:
    import pdfplumber
    import pypdfium2

    document = Document(encoding="pdf", found_by="file format")
    try:
        opened = pypdfium2.PdfDocument(file.path)
        if len(opened) > MAX_PDF_PAGES:
            raise SourceError(
                f"{file.name} has {len(opened)} pages, above the cap of {MAX_PDF_PAGES}", "split the file"
            )
        with pdfplumber.open(file.path) as tables:
            pages = [_pdf_page(opened[i], tables.pages[i], document) for i in range(len(opened))]
        opened.close()
    except SourceError:
        raise
    except Exception as error:  # both libraries raise types of their own, for which a user needs one message
        raise SourceError(
            f"{file.name} is not a readable PDF: {error or type(error).__name__}",
            "open it in a viewer; if it is encrypted, save it without a password",
        ) from error
    repeated = _furniture(pages)
    for number, parts in enumerate(pages, start=1):
        if not parts:
            document.blocks.append(Block("no_text", "", page=number))
        for kind, lines in parts:
            if kind == "table":
                document.blocks.append(Block("table", "\n".join(lines), page=number))
                continue
            edge = [line for line in lines if _shape(line) in repeated]
            document.blocks.extend(Block("furniture", line, page=number) for line in edge)
            document.blocks.extend(lines_to_blocks([line for line in lines if _shape(line) not in repeated], number))
    return document


def _pdf_page(page: Any, plumbed: Any, document: Document) -> list[tuple[str, list[str]]]:
    """Parts of a page from top to bottom: text by pdfium outside tables, tables by pdfplumber.

    When the parts do not hold exactly the visible characters of the page, the page is taken as text without tables.
    """
    textpage = page.get_textpage()
    whole = _clean(textpage.get_text_range())
    document.characters_in += visible(whole)
    document.replaced += whole.count("\ufffd")
    if not whole.strip():
        return []
    parts: list[tuple[str, list[str]]] = []
    height, width, above = page.get_height(), page.get_width(), 0.0
    for table in sorted(plumbed.find_tables(), key=lambda t: t.bbox[1]):
        rows = [[" ".join((cell or "").split()) for cell in row] for row in table.extract()]
        top, bottom = table.bbox[1], table.bbox[3]
        parts.append(("text", _clean(textpage.get_text_bounded(0, height - top, width, height - above)).split("\n")))
        parts.append(("table", ["\t".join(row) for row in rows]))
        above = bottom
    if not parts:
        return [("text", whole.split("\n"))]
    parts.append(("text", _clean(textpage.get_text_bounded(0, 0, width, height - above)).split("\n")))
    held = Counter(c for _, lines in parts for line in lines for c in line if not c.isspace())
    if held != Counter(c for c in whole if not c.isspace()):
        return [("text", whole.split("\n"))]
    return parts


def _clean(text: str) -> str:
    """pdfium marks soft hyphens and generated characters with U+FFFE and U+0002; line ends become `\\n`."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\ufffe", "-").replace("\x02", "-")


def _shape(line: str) -> str:
    return re.sub(r"\d+", "0", " ".join(line.split()))


def _furniture(pages: Sequence[Sequence[tuple[str, list[str]]]]) -> set[str]:
    """Shapes of first and last lines that most pages share: running headers, footers and page numbers."""
    edges: Counter[str] = Counter()
    texts = [[line for kind, lines in parts if kind == "text" for line in lines if line.strip()] for parts in pages]
    for lines in texts:
        edges.update({_shape(line) for line in (*lines[:1], *lines[-1:])})
    enough = max(3, len([t for t in texts if t]) * 0.6)
    return {shape for shape, count in edges.items() if count >= enough and shape}
