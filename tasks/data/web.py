"""HTML as blocks, by lxml. Scripts, styles and templates are no text; navigation, headers and footers are furniture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from specs.errors import SourceError
from tasks.data.blocks import Block, BlockKind, Document
from tasks.data.encoding import Decoded, visible

_NO_TEXT = frozenset({"script", "style", "template", "noscript", "svg", "math", "object", "iframe"})
_FURNITURE = frozenset({"nav", "header", "footer", "title", "button", "select"})
_BREAKS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "center",
        "dd",
        "details",
        "dir",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "form",
        "html",
        "hr",
        "legend",
        "main",
        "menu",
        "ol",
        "p",
        "section",
        "summary",
        "table",
        "tbody",
        "tfoot",
        "thead",
        "tr",
        "td",
        "th",
        "ul",
        "caption",
        "head",
        "li",
        "pre",
    ]
)
_HEADING = re.compile(r"h[1-6]")
_STATED = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_-]{2,20})", re.IGNORECASE)
_XML_STATED = re.compile(rb"<\?xml[^>]{0,100}?encoding\s*=\s*[\"']([A-Za-z0-9_-]{2,20})[\"']", re.IGNORECASE)
_DEEPEST = 200


def stated_encoding(data: bytes) -> str:
    """The encoding that a page states in its head; GB names mean gb18030, which holds them all."""
    found = _STATED.search(data[:4096]) or _XML_STATED.search(data[:4096])
    name = found.group(1).decode("ascii").lower() if found else ""
    return "gb18030" if name in ("gb2312", "gbk", "gb_2312-80", "cp936") else name


def read_html(decoded: Decoded, name: str) -> Document:
    """The blocks of a page. Raises `SourceError` when it holds no element."""
    from lxml import etree, html

    text = re.sub(r"^\s*<\?xml[^>]*\?>", "", decoded.text.replace("\x00", "\ufffd"))
    try:
        root = html.document_fromstring(text, parser=html.HTMLParser(huge_tree=False, no_network=True))
    except (etree.ParserError, etree.XMLSyntaxError, ValueError, AssertionError) as error:
        raise SourceError(f"{name} is not HTML that can be read: {error}", "save the page again as HTML") from error
    document = Document(encoding=decoded.encoding, found_by=decoded.found_by, replaced=decoded.text.count("\ufffd"))
    document.characters_in = visible("".join(_texts(root)))
    _Walk(document).run(root)
    document.noticed["pictures_not_read"] += len(list(root.iter("img")))
    return document


def _texts(element: Any) -> Iterator[str]:
    """Every text of the page that is no script: what the blocks must hold."""
    for event, node in _events(element):
        if event == "start":
            yield node.text or ""
        elif node is not element:
            yield node.tail or ""


def _events(root: Any) -> Iterator[tuple[str, Any]]:
    """Start and end of every element, without recursion; elements that hold no text are passed over whole."""
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        node, seen = stack.pop()
        if seen or not isinstance(node.tag, str) or node.tag in _NO_TEXT:
            yield "end", node
            continue
        yield "start", node
        stack.append((node, True))
        stack.extend((child, False) for child in reversed(node))


class _Walk:
    """Collects text into blocks; a block ends where a block element begins or ends."""

    def __init__(self, document: Document) -> None:
        self._blocks = document.blocks
        self._pieces: list[str] = []
        self._within: list[str] = []
        self._cells: list[str] = []
        self._rows: list[str] = []

    def run(self, root: Any) -> None:
        for event, node in _events(root):
            tag = node.tag if isinstance(node.tag, str) else ""
            if event == "start":
                self._start(tag)
                self._pieces.append(node.text or "")
                continue
            if tag and tag not in _NO_TEXT:
                self._end(tag)
            if node is not root:
                self._pieces.append(node.tail or "")
        self._flush()

    def _start(self, tag: str) -> None:
        if tag == "br":
            self._pieces.append("\n" if self._inside("pre") else " ")
        elif not self._inside("tr") and (tag in _BREAKS or _HEADING.fullmatch(tag) or tag in _FURNITURE):
            self._flush()
        elif tag in _BREAKS:
            self._pieces.append(" ")
        self._within.append(tag)
        if tag in ("td", "th"):
            self._take_cell()

    def _end(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._take_cell(always=True)
        elif tag == "tr" and self._within.count("tr") == 1:
            self._take_cell()
            self._rows.append("\t".join(self._cells))
            self._cells = []
        elif self._inside("tr"):
            self._pieces.append(" " if tag in _BREAKS else "")
        elif tag == "table":
            self._take_table()
        elif tag in _BREAKS or _HEADING.fullmatch(tag) or tag in _FURNITURE:
            self._flush()
        if tag in self._within:
            self._within.reverse()
            self._within.remove(tag)
            self._within.reverse()

    def _inside(self, tag: str) -> bool:
        return tag in self._within

    def _take_cell(self, always: bool = False) -> None:
        """The text so far as a cell; nested tables add their cells to the row they are in."""
        text = " ".join("".join(self._pieces).split())
        self._pieces = []
        if text or always:
            self._cells.append(text)

    def _take_table(self) -> None:
        self._flush()
        kind: BlockKind = "furniture" if self._furniture() else "table"
        if any(row.strip() for row in self._rows):
            self._blocks.append(Block(kind, "\n".join(self._rows)))
        self._rows = []

    def _furniture(self) -> bool:
        return any(tag in _FURNITURE for tag in self._within)

    def _flush(self) -> None:
        raw = "".join(self._pieces)
        self._pieces = []
        if not raw.strip():
            return
        lines = [" ".join(line.split()) for line in raw.split("\n")] if self._inside("pre") else [" ".join(raw.split())]
        text = "\n".join(line for line in lines if line)
        heading = next((tag for tag in reversed(self._within) if _HEADING.fullmatch(tag)), "")
        if self._furniture():
            self._blocks.append(Block("furniture", text))
        elif heading:
            self._blocks.append(Block("heading", text, int(heading[1])))
        elif self._inside("li"):
            if self._blocks and self._blocks[-1].kind == "list":
                text = self._blocks.pop().text + "\n" + text
            self._blocks.append(Block("list", text))
        else:
            self._blocks.append(Block("text", text))
