"""XLSX and XLS as grids of text: stored values by calamine; what only the file's XML says (zeros that a number format
shows, formulas without a stored value) is looked up there.
"""

from __future__ import annotations

import io
import itertools
import posixpath
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from specs.errors import SourceError
from tasks.data.columnar import scalar_text
from tasks.data.encoding import visible
from tasks.data.files import base_name
from tasks.data.grid import Grid, Rows
from tasks.data.records import SourceFile

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_LINK = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


@dataclass(slots=True)
class SheetXml:
    """What only the XML of a sheet says, by cell (row, column) from 0."""

    shown: dict[tuple[int, int], str] = field(default_factory=dict)
    formulas: int = 0
    errors: int = 0
    unsolved: list[str] = field(default_factory=list)


def read_workbook(file: SourceFile) -> list[Grid]:
    """Every sheet. Raises `SourceError` for damage, and for formulas whose value is not stored in the file."""
    import python_calamine as calamine

    try:
        workbook = calamine.CalamineWorkbook.from_path(str(file.path))
        beside = _sheets_xml(file) if base_name(file.name).endswith(".xlsx") else _beside_old(file)
        return [_grid(workbook, name, beside.get(name, SheetXml()), file.name) for name in workbook.sheet_names]
    except SourceError:
        raise
    except Exception as error:  # calamine, xlrd and the XML layer raise types of their own: a user needs one message
        raise SourceError(
            f"{file.name} is not a readable workbook: {error or type(error).__name__}", _way_out(file)
        ) from error


def _way_out(file: SourceFile) -> str:
    """Programs often name an HTML page or a text table `.xls`: then that is what to say."""
    head = _head(file).lstrip().lower()
    if head.startswith((b"<html", b"<!doctype html", b"<table", b"<meta")):
        return "it is an HTML page with the name of a workbook: open it in a spreadsheet program and save it as XLSX"
    if b"\t" in head and b"\x00" not in head:
        return "it is a text table with the name of a workbook: name it .tsv"
    return "open it in a spreadsheet program and save it again"


def _head(file: SourceFile) -> bytes:
    """The first bytes; none where the file cannot be opened, which is what its error says already."""
    try:
        with file.path.open("rb") as opened:
            return opened.read(512)
    except OSError:
        return b""


def _grid(workbook: Any, name: str, beside: SheetXml, file_name: str) -> Grid:
    sheet = workbook.get_sheet_by_name(name)
    cells = [[scalar_text(value) for value in row] for row in sheet.to_python(skip_empty_area=False)]
    for (row, column), text in beside.shown.items():
        if row < len(cells) and column < len(cells[row]):
            cells[row][column] = text
    if beside.unsolved:
        raise SourceError(
            f"{file_name}, sheet {name!r}: the formulas in {', '.join(beside.unsolved[:5])} have no stored value",
            "open the file in a spreadsheet program and save it, or paste the column as values",
        )
    merged = tuple((a[0], a[1], b[0], b[1]) for a, b in sheet.merged_cell_ranges or ())
    count = sum(visible(cell) for row in cells for cell in row)
    noticed = {
        "formula_cells": beside.formulas,
        "error_cells": beside.errors,
        "zeros_of_format": len(beside.shown) - beside.errors,
    }
    return Grid(
        name,
        Rows(cells),
        merged,
        "workbook",
        "file format",
        count,
        count,
        noticed={key: number for key, number in noticed.items() if number},
    )


def _sheets_xml(file: SourceFile) -> dict[str, SheetXml]:
    """Sheets by name. Only sheets that hold formulas or cells in a zero-padding format are walked through."""
    with zipfile.ZipFile(file.path) as archive:
        padded = _padded_styles(archive)
        found = {}
        for name, part in _parts(archive):
            raw = archive.read(part)
            found[name] = _walk(raw, padded) if padded or b"<f" in raw or b't="e"' in raw else SheetXml()
        return found


def _beside_old(file: SourceFile) -> dict[str, SheetXml]:
    """The same of an XLS file, by xlrd: padded numbers and error cells."""
    import xlrd

    book = xlrd.open_workbook(str(file.path), formatting_info=True)
    found = {}
    for sheet in book.sheets():
        found[sheet.name] = beside = SheetXml()
        for row, column in itertools.product(range(sheet.nrows), range(sheet.ncols)):
            cell = sheet.cell(row, column)
            if cell.ctype == xlrd.XL_CELL_ERROR:
                beside.errors += 1
                beside.shown[row, column] = xlrd.error_text_from_code.get(cell.value, "#ERROR!")
            elif cell.ctype == xlrd.XL_CELL_NUMBER:
                code = book.format_map[book.xf_list[cell.xf_index].format_key].format_str
                plain = scalar_text(float(cell.value))
                shown = zero_padded(plain, code)
                if shown and shown != plain:
                    beside.shown[row, column] = shown
    return found


def _parts(archive: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    """(sheet name, path of its XML in the archive)."""
    links = {
        link.get("Id"): link.get("Target", "")
        for link in _root(archive, "xl/_rels/workbook.xml.rels")
        if link.get("Id")
    }
    for sheet in _root(archive, "xl/workbook.xml").iter(f"{_MAIN}sheet"):
        target = links.get(sheet.get(_LINK), "")
        part = posixpath.normpath(target.lstrip("/") if target.startswith("/") else posixpath.join("xl", target))
        if part in archive.namelist():
            yield str(sheet.get("name")), part


def _root(archive: zipfile.ZipFile, part: str) -> Any:
    from lxml import etree

    return etree.fromstring(archive.read(part), etree.XMLParser(resolve_entities=False, no_network=True))


def _padded_styles(archive: zipfile.ZipFile) -> dict[str, str]:
    """Style index (as cells name it) to the format code, of formats that pad whole numbers with zeros."""
    if "xl/styles.xml" not in archive.namelist():
        return {}
    root = _root(archive, "xl/styles.xml")
    codes = {f.get("numFmtId"): f.get("formatCode", "") for f in root.iter(f"{_MAIN}numFmt")}
    styles = root.find(f"{_MAIN}cellXfs")
    found = {}
    for index, style in enumerate(styles if styles is not None else ()):
        code = codes.get(style.get("numFmtId"), "")
        if zero_padded("1", code):
            found[str(index)] = code
    return found


def zero_padded(number: str, code: str) -> str:
    """A whole number as a zero-padding format shows it (`00000`, `"E-"000`, `00\\-000`), else an empty string."""
    section = re.sub(r"\[[^\]]*\]", "", code.split(";")[0])
    pieces = re.findall(r'"[^"]*"|\\.|_.|[^"\\_]', section)
    plain = ["" if p.startswith("_") else p.strip('"') if p.startswith('"') else p.removeprefix("\\") for p in pieces]
    digits = [i for i, piece in enumerate(pieces) if piece == "0"]
    others = [p for p in pieces if p != "0" and not p.startswith(('"', "\\", "_"))]
    if len(digits) < 2 or any(p not in " -/()" for p in others) or not number.isascii() or not number.isdigit():
        return ""
    filled = number.zfill(len(digits))
    surplus = len(filled) - len(digits)
    for place, at in enumerate(digits):
        plain[at] = filled[: surplus + 1] if place == 0 else filled[surplus + place]
    return "".join(plain).strip()


def _walk(raw: bytes, padded: dict[str, str]) -> SheetXml:
    from lxml import etree

    found = SheetXml()
    row = column = -1
    for event, element in etree.iterparse(
        io.BytesIO(raw), events=("start", "end"), tag=(f"{_MAIN}row", f"{_MAIN}c"), resolve_entities=False
    ):
        if element.tag == f"{_MAIN}row":
            if event == "start":
                row, column = (int(element.get("r")) - 1 if element.get("r") else row + 1), -1
            else:
                element.clear()
            continue
        if event == "start":
            column = _column(element.get("r")) if element.get("r") else column + 1
            continue
        value = element.findtext(f"{_MAIN}v") or ""
        if element.find(f"{_MAIN}f") is not None:
            found.formulas += 1
            if not value and element.find(f"{_MAIN}is") is None and element.get("t") != "str":
                found.unsolved.append(element.get("r") or f"row {row + 1}")
        if element.get("t") == "e" and value:  # calamine gives an empty cell for an error
            found.errors += 1
            found.shown[row, column] = value
        code = padded.get(element.get("s") or "")
        shown = zero_padded(value, code) if code and element.get("t", "n") == "n" else ""
        if shown and shown != value:
            found.shown[row, column] = shown
    return found


def _column(reference: str) -> int:
    """`AB12` to 27."""
    number = 0
    for char in reference.upper():
        if not char.isalpha():
            break
        number = number * 26 + ord(char) - 64
    return number - 1
