"""Manuals as PDF and DOCX from a plain text with light marks: `# `, `## `, `1. `, `| cell | cell`, paragraphs."""

from __future__ import annotations

import datetime as dt
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from examples.make.phrases import read_text
from examples.make.tables import STAMP, restamped

FONTS = {"en": ("Helvetica", "Helvetica-Bold"), "zh": ("STSong-Light", "STSong-Light")}
"""The Chinese font is one that every PDF reader brings; text extraction needs no file of it."""


@dataclass(frozen=True)
class Block:
    """A piece of a document: title, heading, item, table or paragraph. A table has rows, the others text."""

    kind: str
    text: str = ""
    rows: tuple[tuple[str, ...], ...] = ()


def read_blocks(name: str) -> list[Block]:
    """The blocks of a text beside this module."""
    blocks: list[Block] = []
    for line in read_text(name).splitlines():
        if line.startswith("| "):
            row = tuple(cell.strip() for cell in line.strip("| ").split("|"))
            if blocks and blocks[-1].kind == "table":
                blocks[-1] = Block("table", rows=(*blocks[-1].rows, row))
            else:
                blocks.append(Block("table", rows=(row,)))
        elif line.startswith("# "):
            blocks.append(Block("title", line[2:]))
        elif line.startswith("## "):
            blocks.append(Block("heading", line[3:]))
        elif line[:1].isdigit() and line[1:3] == ". ":
            blocks.append(Block("item", line))
        elif line.strip():
            blocks.append(Block("paragraph", line))
    return blocks


def write_pdf(name: str, language: str, path: Path) -> None:
    """A manual of several A4 pages, one chapter per page, with a page number at the foot."""
    from reportlab import rl_config
    from reportlab.lib.pagesizes import A4
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont
    from reportlab.platypus import PageBreak, SimpleDocTemplate

    rl_config.invariant = 1
    if language == "zh":
        pdfmetrics.registerFont(UnicodeCIDFont(FONTS["zh"][0]))
    styles = _styles(language)
    story: list[Any] = []
    for block in read_blocks(name):
        if block.kind == "heading" and any(b.__class__.__name__ == "Paragraph" for b in story[2:]):
            story.append(PageBreak())
        story.append(_flowable(block, styles, language))

    def number_page(canvas: Any, document: Any) -> None:
        canvas.setFont(FONTS[language][0], 8)
        canvas.drawCentredString(A4[0] / 2, 28, str(document.page))

    template = SimpleDocTemplate(str(path), pagesize=A4, pageCompression=0, invariant=1, title=path.stem, author="")
    template.build(story, onFirstPage=number_page, onLaterPages=number_page)


def _styles(language: str) -> dict[str, Any]:
    from reportlab.lib.styles import ParagraphStyle

    plain, bold = FONTS[language]
    wrap = {"wordWrap": "CJK"} if language == "zh" else {}
    body = ParagraphStyle("body", fontName=plain, fontSize=10.5, leading=15, spaceAfter=7, **wrap)
    return {
        "paragraph": body,
        "item": ParagraphStyle("item", parent=body, leftIndent=14, spaceAfter=3),
        "heading": ParagraphStyle("heading", parent=body, fontName=bold, fontSize=13, leading=18, spaceAfter=8),
        "title": ParagraphStyle("title", parent=body, fontName=bold, fontSize=17, leading=24, spaceAfter=14),
    }


def _flowable(block: Block, styles: dict[str, Any], language: str) -> Any:
    from reportlab.lib import colors
    from reportlab.platypus import Paragraph, Table

    if block.kind != "table":
        return Paragraph(escape(block.text), styles[block.kind])
    look = [
        ("GRID", (0, 0), (-1, -1), 0.5, colors.black),
        ("FONT", (0, 0), (-1, -1), FONTS[language][0], 9),
        ("VALIGN", (0, 0), (-1, -1), "TOP"),
    ]
    return Table([list(row) for row in block.rows], style=look, repeatRows=1)


def write_docx(name: str, path: Path) -> None:
    """A manual as a Word file."""
    from docx import Document

    document = Document()
    for block in read_blocks(name):
        if block.kind == "table":
            table = document.add_table(rows=0, cols=len(block.rows[0]))
            table.style = "Table Grid"
            for row in block.rows:
                for cell, text in zip(table.add_row().cells, row, strict=True):
                    cell.text = text
        elif block.kind in ("title", "heading"):
            document.add_heading(block.text, level=0 if block.kind == "title" else 1)
        else:
            document.add_paragraph(block.text)
    document.core_properties.author = "service department"
    document.core_properties.created = document.core_properties.modified = dt.datetime(*STAMP)
    buffer = io.BytesIO()
    document.save(buffer)
    path.write_bytes(restamped(buffer.getvalue()))
