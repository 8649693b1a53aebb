"""DOCX as blocks: every text of the package once, in reading order. What python-docx passes over is walked here.

Content controls, insertions under review, text boxes, notes, headers and footers are texts that a reader sees, and
`Document.paragraphs` has none of them. Deleted text under review is left out, and so is the second copy of a text box.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from typing import Any

from specs.errors import SourceError
from tasks.data.blocks import LIST_ITEM, Block, Document
from tasks.data.encoding import visible
from tasks.data.records import SourceFile

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_BOX = f"{_W}txbxContent"
_DELETED = (f"{_W}del", f"{_W}moveFrom")
_PASSED_OVER = (*_DELETED, _FALLBACK, f"{_W}pPr", f"{_W}rPr", f"{_W}sdtPr", f"{_W}tblPr")
_BESIDES = re.compile(r"word/(?:(footnotes|endnotes)|(header|footer)\d*)\.xml")


def read_docx(file: SourceFile) -> Document:
    """Raises `SourceError` when the file is no DOCX."""
    import docx

    try:
        opened = docx.Document(str(file.path))
        document = Document(encoding="docx", found_by="file format")
        names = {style.style_id: style.name or "" for style in opened.styles}
        reader = _Reader(names, document)
        reader.container(opened.element.body)
        document.noticed["pictures_not_read"] += len(list(opened.element.body.iter(f"{_W}drawing", f"{_W}pict")))
        document.noticed["symbols_not_read"] += len(list(opened.element.body.iter(f"{_W}sym")))
        _read_besides(file, document, reader)
    except Exception as error:  # zip, XML and DOCX layers raise types of their own: a user needs one message
        raise SourceError(
            f"{file.name} is not a readable DOCX file: {error or type(error).__name__}", "save it again as DOCX"
        ) from error
    return document


def _read_besides(file: SourceFile, document: Document, reader: _Reader) -> None:
    """Notes after the text; headers and footers as furniture. Characters of all parts are counted from their XML."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    with zipfile.ZipFile(file.path) as archive:
        document.characters_in = _shown(etree.fromstring(archive.read("word/document.xml"), parser))
        for name in sorted(archive.namelist()):
            part = _BESIDES.fullmatch(name)
            if not part:
                continue
            root = etree.fromstring(archive.read(name), parser)
            document.characters_in += _shown(root)
            if part.group(1):
                for note in root:
                    reader.container(note)
                continue
            texts = filter(None, (reader.text(p) for p in root.iter(f"{_W}p")))
            document.blocks.extend(Block("furniture", text) for text in texts)


def _shown(root: Any) -> int:
    """Visible characters of an XML part that a reader sees."""
    hyphens = sum(not _hidden(h) for h in root.iter(f"{_W}noBreakHyphen"))
    return hyphens + sum(visible(t.text or "") for t in root.iter(f"{_W}t") if not _hidden(t))


def _hidden(element: Any) -> bool:
    return any(above.tag in (*_DELETED, _FALLBACK) for above in element.iterancestors())


class _Reader:
    """Walks the XML of a part and adds its blocks to a document."""

    def __init__(self, style_names: dict[str, str], document: Document) -> None:
        self._names, self._document = style_names, document

    def container(self, element: Any) -> None:
        """Paragraphs and tables below an element, content controls and insertions opened."""
        for child in element:
            if child.tag == f"{_W}p":
                self._paragraph(child)
            elif child.tag == f"{_W}tbl":
                self._table(child)
            elif isinstance(child.tag, str) and child.tag not in _PASSED_OVER:
                self.container(child)

    def _paragraph(self, paragraph: Any) -> None:
        text = self.text(paragraph)
        if text:
            self._add(paragraph, text)
        for box in paragraph.iter(_BOX):
            if not _hidden(box) and _nearest(box, paragraph):
                self.container(box)

    def _add(self, paragraph: Any, text: str) -> None:
        blocks = self._document.blocks
        style = paragraph.find(f"{_W}pPr/{_W}pStyle")
        name = self._names.get(style.get(f"{_W}val"), "") if style is not None else ""
        level = re.match(r"(?:heading|标题)\s*(\d)", name, re.IGNORECASE)
        numbered = paragraph.find(f"{_W}pPr/{_W}numPr") is not None
        if level or name == "Title":
            blocks.append(Block("heading", text, int(level.group(1)) if level else 1))
        elif name.startswith("List") or numbered or LIST_ITEM.match(text):
            if blocks and blocks[-1].kind == "list":
                text = blocks.pop().text + "\n" + text
            blocks.append(Block("list", text))
        else:
            blocks.append(Block("text", text))

    def _table(self, table: Any) -> None:
        """One line per row. A vertically merged cell has its text in its first row; nested tables are in their cell."""
        rows = []
        for row in _rows_of(table):
            cells = [" ".join(filter(None, map(self.text_with_boxes, cell.iter(f"{_W}p")))) for cell in _cells_of(row)]
            rows.append("\t".join(cells))
        if any(row.strip() for row in rows):
            self._document.blocks.append(Block("table", "\n".join(rows)))

    def text(self, paragraph: Any) -> str:
        """The text of a paragraph in one line, without its text boxes."""
        return " ".join("".join(_pieces(paragraph)).split())

    def text_with_boxes(self, paragraph: Any) -> str:
        """The text of a paragraph in a table; paragraphs of text boxes come as paragraphs of the cell."""
        return "" if _hidden(paragraph) else self.text(paragraph)


def _rows_of(element: Any) -> Iterator[Any]:
    for child in element:
        if child.tag == f"{_W}tr":
            yield child
        elif child.tag in (f"{_W}sdt", f"{_W}sdtContent", f"{_W}ins", f"{_W}customXml"):
            yield from _rows_of(child)


def _cells_of(element: Any) -> Iterator[Any]:
    for child in element:
        if child.tag == f"{_W}tc":
            yield child
        elif child.tag in (f"{_W}sdt", f"{_W}sdtContent", f"{_W}ins", f"{_W}customXml"):
            yield from _cells_of(child)


def _nearest(box: Any, paragraph: Any) -> bool:
    """Whether a text box hangs on this paragraph and not on one inside another box."""
    return next(above for above in box.iterancestors(f"{_W}p")) is paragraph


def _pieces(element: Any) -> Iterator[str]:
    for child in element:
        if child.tag == f"{_W}t":
            yield child.text or ""
        elif child.tag in (f"{_W}tab", f"{_W}br", f"{_W}cr"):
            yield " "
        elif child.tag == f"{_W}noBreakHyphen":
            yield "-"
        elif child.tag != _BOX and child.tag not in _PASSED_OVER:
            yield from _pieces(child)
