"""Any document as a sequence of blocks, by its ending: PDF, DOCX, HTML, Markdown or plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tasks.data.blocks import (
    LIST_ITEM,
    Block,
    BlockKind,
    Document,
    join_lines,
    lines_to_blocks,
)
from tasks.data.encoding import decode, visible
from tasks.data.files import base_name, read_bytes
from tasks.data.records import SourceFile


def read_document(file: SourceFile, declared: str = "auto", ocr: bool = False) -> Document:
    """The blocks of a document; `ocr` lets pages without a text layer be recognised. Raises `SourceError`."""
    name = base_name(file.name)
    if name.endswith(".pdf"):
        from tasks.data.pdf_pages import read_pdf

        return read_pdf(file, ocr)
    if name.endswith(".docx"):
        from tasks.data.word import read_docx

        return read_docx(file)
    data = read_bytes(file)
    if name.endswith((".html", ".htm")):
        from tasks.data.web import read_html, stated_encoding

        return read_html(decode(data, file.name, declared, stated_encoding(data)), file.name)
    decoded = decode(data, file.name, declared)
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
        this: BlockKind = "table" if stripped.startswith("|") else "list" if LIST_ITEM.match(line) else "text"
        continues = this == "text" and kind == "list" and pending and line[0].isspace()
        if pending and this != kind and not continues:
            yield from flush()
        if not continues:
            kind = this
        pending.append(stripped)
    yield from flush()
