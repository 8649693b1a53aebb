"""PDF as blocks: text by pypdfium2, tables by pdfplumber, each page checked to hold exactly the characters it shows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tasks.data.blocks import Block, Document, lines_to_blocks
from tasks.data.encoding import visible
from tasks.data.ocr import LEAST_CONFIDENCE, recognise, require_ocr
from tasks.data.pdf_files import readable_pdf, require_few_pages
from tasks.data.records import SourceFile


def read_pdf(file: SourceFile, ocr: bool = False) -> Document:
    """Pages without a text layer are `no_text` blocks, or recognised with `ocr`. Raises `SourceError` for damage."""
    import pdfplumber
    import pypdfium2

    document = Document(encoding="pdf", found_by="file format")
    with readable_pdf(file), pypdfium2.PdfDocument(file.path) as opened:
        require_few_pages(len(opened), file)
        with pdfplumber.open(file.path) as tables:
            pages = []
            for i in range(len(opened)):
                pages.append(_pdf_page(opened[i], tables.pages[i], document))
                tables.pages[i].close()  # else the objects of every page stay in memory
        blank = [number for number, parts in enumerate(pages, start=1) if not parts]
        recognised: dict[int, list[Block]] = {}
        if ocr and blank:
            require_ocr(file.name)
            recognised = {n: _recognised(opened[n - 1], n, document, file.name) for n in blank}
    repeated = _furniture(pages)
    for number, parts in enumerate(pages, start=1):
        if not parts:
            document.blocks.extend(recognised.get(number) or [Block("no_text", "", page=number)])
        for kind, lines in parts:
            if kind == "table":
                document.blocks.append(Block("table", "\n".join(lines), page=number))
                continue
            edge = [line for line in lines if _shape(line) in repeated]
            document.blocks.extend(Block("furniture", line, page=number) for line in edge)
            document.blocks.extend(lines_to_blocks([line for line in lines if _shape(line) not in repeated], number))
    return document


def _recognised(page: Any, number: int, document: Document, name: str) -> list[Block]:
    """The text of a picture as blocks; what is not sure enough stays a page without text, with the words kept."""
    found = recognise(page, f"{name}, page {number}")
    text = "\n".join(found.lines)
    if not text:
        return []
    document.ocr_pages.append(number)
    document.encoding = "pdf with ocr"
    document.characters_in += visible(text)
    if found.confidence < LEAST_CONFIDENCE:
        document.noticed["ocr_pages_unsure"] += 1
        return [Block("no_text", text, page=number, recognised=True)]
    document.noticed["ocr_pages"] += 1
    return [replace(block, recognised=True) for block in lines_to_blocks(found.lines, number)]


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
