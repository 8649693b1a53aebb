"""The tables inside a PDF as grids: found by pdfplumber, and refused where their characters are not those of the page.

A table that goes on over pages is one grid: the next one of the same columns at the same place continues it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from specs.errors import SourceError
from tasks.data.encoding import visible
from tasks.data.grid import Grid, Rows
from tasks.data.pdf_files import readable_pdf, require_few_pages
from tasks.data.records import SourceFile

_SAME_PLACE = 3.0
"""Points by which the edges of a table that goes on may differ between pages."""
_CJK = re.compile(r"[\u3000-\u303f\u3400-\u9fff\uff00-\uffef]")


@dataclass(slots=True)
class _Chain:
    """One table over one or more pages."""

    sheet: str
    edges: tuple[float, ...]
    rows: list[list[str]] = field(default_factory=list)


def read_pdf_tables(file: SourceFile) -> list[Grid]:
    """Every table with at least two columns and two rows. Raises `SourceError` when there is none."""
    import pdfplumber
    import pypdfium2

    chains: list[_Chain] = []
    blank: list[int] = []
    with readable_pdf(file), pdfplumber.open(file.path) as plumbed, pypdfium2.PdfDocument(file.path) as document:
        require_few_pages(len(plumbed.pages), file)
        for number, page in enumerate(plumbed.pages, start=1):
            text = document[number - 1].get_textpage().get_text_range()
            if not text.strip():
                blank.append(number)
            _take_page(page, number, text, chains, file.name)
            page.close()
    if not chains:
        pages = f" (pages without text: {', '.join(map(str, blank))})" if blank else ""
        raise SourceError(
            f"{file.name} holds no table with lines that can be read{pages}",
            "give the table as CSV or XLSX; the running text of a PDF is a source of kind manuals",
        )
    return [*(_grid(chain) for chain in chains), *(_blank(number) for number in blank)]


def _take_page(page: Any, number: int, text: str, chains: list[_Chain], name: str) -> None:
    rest = _characters(text)
    tables = sorted(page.find_tables(), key=lambda t: t.bbox[1])
    for count, table in enumerate(tables, start=1):
        rows = [[_cell(cell) for cell in row] for row in table.extract()]
        if len(rows[0]) < 2:
            continue
        missing = _characters("".join(cell for row in rows for cell in row)) - rest
        if missing:
            found = "".join(sorted(missing))[:20]
            raise SourceError(
                f"{name}, page {number}: a table cannot be read without changing it (characters {found!r})",
                "give this table as CSV or XLSX",
            )
        edges = tuple(sorted({round(cell[0], 1) for cell in table.cells}))
        chain = chains[-1] if chains and count == 1 else None
        if chain is None or not _continues(chain, edges, len(rows[0])):
            chain = _Chain(f"page {number} table {count}", edges)
            chains.append(chain)
        chain.rows.extend(rows)


def _continues(chain: _Chain, edges: Sequence[float], width: int) -> bool:
    same = len(edges) == len(chain.edges)
    near = same and all(abs(a - b) <= _SAME_PLACE for a, b in zip(edges, chain.edges, strict=True))
    return near and len(chain.rows[0]) == width


def _cell(text: str | None) -> str:
    """The lines of a cell as one: wrapped words with a space, Chinese without."""
    joined = ""
    for line in (text or "").split("\n"):
        part = line.strip()
        if joined and part:
            joined += "" if _CJK.match(joined[-1]) or _CJK.match(part[0]) else " "
        joined += part
    return joined


def _characters(text: str) -> Counter[str]:
    """Visible characters in their compatibility form; soft hyphens of pdfium are hyphens."""
    plain = unicodedata.normalize("NFKC", text.replace("\ufffe", "-").replace("\x02", "-"))
    return Counter(c for c in plain if not c.isspace())


def _grid(chain: _Chain) -> Grid:
    count = sum(visible(cell) for row in chain.rows for cell in row)
    return Grid(
        chain.sheet,
        Rows(chain.rows),
        encoding="pdf",
        found_by="file format",
        characters_in=count,
        characters_out=count,
        replaced=sum(cell.count("\ufffd") for row in chain.rows for cell in row),
        noticed={"pdf_tables": 1},
    )


def _blank(number: int) -> Grid:
    """A page without a text layer: named as a sheet that is not read."""
    empty: list[list[str]] = []
    return Grid(f"page {number} without text", Rows(empty), encoding="pdf", found_by="file format")
