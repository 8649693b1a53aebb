"""The characters of raw documents, counted again by other readers than the data stage's."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import tempfile
import unicodedata
import zipfile
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_SECOND_COPY = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_NOT_SHOWN = (f"{_WORD}del", f"{_WORD}moveFrom", _SECOND_COPY)
_PARTS = re.compile(r"word/(document|footnotes|endnotes|(header|footer)\d*)\.xml")
_SILENT = frozenset({"script", "style", "template", "svg", "math", "iframe"})


def visible_characters(text: str, besides: str = "") -> Counter[str]:
    """Characters that are not white space, counted."""
    return Counter(c for c in text if not c.isspace() and c not in besides and c != "\ufeff")


def folded(counted: Counter[str]) -> Counter[str]:
    """Ligatures and other compatibility forms as the characters they stand for."""
    result: Counter[str] = Counter()
    for char, count in counted.items():
        for part in unicodedata.normalize("NFKC", char):
            result[part] += count
    return result


def docx_characters(path: Path) -> Counter[str]:
    """What a reader of the document, its notes, headers and footers sees."""
    counted: Counter[str] = Counter()
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if _PARTS.fullmatch(name):
                stack = [ElementTree.fromstring(archive.read(name))]
                while stack:
                    element = stack.pop()
                    if element.tag == f"{_WORD}t":
                        counted.update(visible_characters(element.text or ""))
                    counted["-"] += element.tag == f"{_WORD}noBreakHyphen"
                    stack.extend(child for child in element if child.tag not in _NOT_SHOWN)
    return +counted


class _Shown(HTMLParser):
    """Collects the text outside scripts and styles."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._silent += tag in _SILENT
        if tag == "textarea":  # what looks like elements inside is text, with character references
            self.set_cdata_mode(tag)

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in _SILENT and self._silent > 0

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.texts.append(html.unescape(data) if self.cdata_elem == "textarea" else data)


def html_characters(text: str) -> Counter[str]:
    """What a reader of the page sees."""
    parser = _Shown()
    parser.feed(text)
    parser.close()
    return visible_characters("".join(parser.texts))


def pdf_characters(path: Path, recognised: bool) -> list[Counter[str]]:
    """By pdfplumber, and by pdfium page by page; soft hyphens are hyphens in both.

    With `recognised`, pages without a text layer are given to tesseract again.
    """
    import pdfplumber
    import pypdfium2

    with pdfplumber.open(path) as opened:
        plumbed = "".join(c["text"] for page in opened.pages for c in page.chars)
    with pypdfium2.PdfDocument(path) as document:
        pages = [document[i].get_textpage().get_text_range() for i in range(len(document))]
        blank = [i for i, page in enumerate(pages) if not page.strip()] if recognised else []
        seen = "".join(_recognise(document[i]) for i in blank)
    both = [plumbed + seen, "".join(pages) + seen]
    return [folded(visible_characters(t.replace("\ufffe", "-").replace("\x02", "-"))) for t in both]


def _recognise(page: Any) -> str:
    """The text of a page that is a picture, by the program itself; nothing where it is not installed."""
    if not shutil.which("tesseract"):
        return ""
    width, height = page.get_size()
    scale = min(300 / 72, (60_000_000 / (width * height)) ** 0.5)
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "page.png"
        page.render(scale=scale, grayscale=True).to_pil().save(picture)
        command = ["tesseract", str(picture), "stdout", "-l", "chi_sim+eng"]
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    return done.stdout.decode("utf-8", errors="replace").replace("\f", "")
