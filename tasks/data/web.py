"""HTML as blocks, by lexbor. Scripts, styles and templates are no text; navigation, headers and footers are furniture.

lexbor follows the HTML standard; libxml2 loses texts after `</html>`, texts above 10 MB and deeply nested elements.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from specs.errors import SourceError
from tasks.data.blocks import Block, BlockKind, Document
from tasks.data.encoding import Decoded, visible

_NO_TEXT = frozenset({"script", "style", "template", "svg", "math", "iframe"})
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
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_STATED = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_-]{2,20})", re.IGNORECASE)
_XML_STATED = re.compile(rb"<\?xml[^>]{0,100}?encoding\s*=\s*[\"']([A-Za-z0-9_-]{2,20})[\"']", re.IGNORECASE)


def stated_encoding(data: bytes) -> str:
    """The encoding that a page states in its head; GB names mean gb18030, which holds them all."""
    found = _STATED.search(data[:4096]) or _XML_STATED.search(data[:4096])
    name = found.group(1).decode("ascii").lower() if found else ""
    return "gb18030" if name in ("gb2312", "gbk", "gb_2312-80", "cp936") else name


def read_html(decoded: Decoded, name: str) -> Document:
    """The blocks of a page. Raises `SourceError` when it holds no element."""
    from selectolax.lexbor import LexborHTMLParser, SelectolaxError

    text = re.sub(r"^\s*<\?xml[^>]*\?>", "", decoded.text.replace("\x00", "\ufffd"))
    try:
        root = LexborHTMLParser(text).root
    except (SelectolaxError, ValueError) as error:
        raise SourceError(f"{name} is not HTML that can be read: {error}", "save the page again as HTML") from error
    document = Document(encoding=decoded.encoding, found_by=decoded.found_by, replaced=decoded.text.count("\ufffd"))
    walk = _Walk(document)
    for event, what in _events(root):
        if event == "text":
            document.characters_in += visible(what)
        walk.take(event, what)
        document.noticed["pictures_not_read"] += (event, what) == ("start", "img")
    walk.finish()
    return document


def _events(root: Any) -> Iterator[tuple[str, str]]:
    """("start", tag), ("text", text) and ("end", tag) in the order of the page, without recursion."""
    stack: list[tuple[Any, bool]] = [(root, False)] if root is not None else []
    while stack:
        node, seen = stack.pop()
        if seen:
            yield "end", node.tag
        elif node.is_text_node:
            yield "text", node.text_content or ""
        elif node.is_element_node and node.tag not in _NO_TEXT:
            yield "start", node.tag
            stack.append((node, True))
            children, child = [], node.first_child
            while child is not None:
                children.append((child, False))
                child = child.next
            stack.extend(reversed(children))


class _Walk:
    """Collects text into blocks; a block ends where a block element begins or ends."""

    def __init__(self, document: Document) -> None:
        self._blocks = document.blocks
        self._pieces: list[str] = []
        self._open: Counter[str] = Counter()
        self._cells: list[str] = []
        self._rows: list[str] = []

    def take(self, event: str, what: str) -> None:
        """One event of the page."""
        if event == "text":
            self._pieces.append(what)
        elif event == "start":
            self._start(what)
        else:
            self._end(what)

    def finish(self) -> None:
        """The end of the page."""
        self._flush()

    def _start(self, tag: str) -> None:
        if tag == "br":
            self._pieces.append("\n" if self._inside("pre") else " ")
        elif not self._inside("tr") and (tag in _BREAKS or tag in _HEADINGS or tag in _FURNITURE):
            self._flush()
        elif tag in _BREAKS:
            self._pieces.append(" ")
        self._open[tag] += 1
        if tag in ("td", "th"):
            self._take_cell()

    def _end(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._take_cell(always=True)
        elif tag == "tr" and self._open["tr"] == 1:
            self._take_cell()
            self._rows.append("\t".join(self._cells))
            self._cells = []
        elif self._inside("tr"):
            self._pieces.append(" " if tag in _BREAKS else "")
        elif tag == "table":
            self._take_table()
        elif tag in _BREAKS or tag in _HEADINGS or tag in _FURNITURE:
            self._flush()
        self._open[tag] -= 1

    def _inside(self, tag: str) -> bool:
        return self._open[tag] > 0

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
        return any(self._open[tag] for tag in _FURNITURE)

    def _flush(self) -> None:
        raw = "".join(self._pieces)
        self._pieces = []
        if not raw.strip():
            return
        lines = [" ".join(line.split()) for line in raw.split("\n")] if self._inside("pre") else [" ".join(raw.split())]
        text = "\n".join(line for line in lines if line)
        heading = next((tag for tag in _HEADINGS if self._open[tag]), "")
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
