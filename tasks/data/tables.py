"""Tables as text: CSV, TSV, XLSX, XLS into a header and rows of strings; title rows and merged header bands found."""

from __future__ import annotations

import csv
import datetime as dt
import difflib
import io
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from specs.errors import SourceError
from tasks.data.encoding import Decoded, decode, visible
from tasks.data.files import read_bytes
from tasks.data.quoting import rows_of
from tasks.data.records import SourceFile

HEADER_SEARCH_ROWS = 30
HEADER_BAND_ROWS = 3
_DELIMITERS = (",", ";", "\t", "|")


@dataclass(frozen=True, slots=True)
class Grid:
    """All cells of a sheet as text. `merged` are (first row, first column, last row, last column), from 0."""

    sheet: str
    cells: list[list[str]]
    merged: tuple[tuple[int, int, int, int], ...] = ()
    encoding: str = ""
    found_by: str = ""
    characters_in: int = 0
    characters_out: int = 0
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """A sheet under its header: `columns` maps our fields to column indices; `rows` start below the header band."""

    sheet: str
    header: list[str]
    columns: dict[str, int]
    rows: list[list[str]]

    def location(self, number: int) -> str:
        """Where data row `number` (1-based) is."""
        return f"{self.sheet}#{number}"

    def value(self, row: Sequence[str], field: str) -> str:
        """The cell of our `field` in `row`, or an empty string."""
        at = self.columns.get(field)
        return row[at].strip() if at is not None and at < len(row) else ""


def read_grids(file: SourceFile, declared: str = "auto") -> list[Grid]:
    """Every sheet of a file. Raises `SourceError` for bytes that are no table."""
    if file.name.lower().endswith((".xlsx", ".xls")):
        return _read_workbook(file)
    return [read_delimited(decode(read_bytes(file), file.name, declared), file.name)]


def read_delimited(decoded: Decoded, name: str) -> Grid:
    """A CSV or TSV text as a grid; the delimiter is the one that gives the most consistent rows."""
    text = decoded.text
    delimiter = "\t" if ".tsv" in name.lower() else _delimiter(text)
    cells = rows_of(text, delimiter, name)
    structure = delimiter + '"'
    return Grid(
        sheet="",
        cells=cells,
        encoding=decoded.encoding,
        found_by=decoded.found_by,
        characters_in=visible(text, structure),
        characters_out=sum(visible(cell, structure) for row in cells for cell in row),
        replaced=text.count("\ufffd"),
    )


def _delimiter(text: str) -> str:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    head = "\n".join(text.split("\n")[:200])
    best, best_score = ",", -1.0
    for candidate in _DELIMITERS:
        widths = [len(row) for row in csv.reader(io.StringIO(head, newline=""), delimiter=candidate) if row]
        if not widths:
            continue
        usual = max(set(widths), key=lambda w: (widths.count(w), w))
        score = widths.count(usual) / len(widths) * (usual > 1) + min(usual, 50) / 1000
        if score > best_score:
            best, best_score = candidate, score
    return best


def _read_workbook(file: SourceFile) -> list[Grid]:
    import python_calamine as calamine

    try:
        workbook = calamine.CalamineWorkbook.from_path(str(file.path))
        grids = []
        for sheet_name in workbook.sheet_names:
            sheet = workbook.get_sheet_by_name(sheet_name)
            cells = [[cell_text(value) for value in row] for row in sheet.to_python(skip_empty_area=False)]
            merged = tuple((a[0], a[1], b[0], b[1]) for a, b in sheet.merged_cell_ranges or ())
            count = sum(visible(cell) for row in cells for cell in row)
            grids.append(Grid(sheet_name, cells, merged, "workbook", "file format", count, count))
    except (calamine.CalamineError, OSError, ValueError) as error:
        raise SourceError(
            f"{file.name} is not a readable workbook: {error}", "open it in a spreadsheet program and save it again"
        ) from error
    return grids


def cell_text(value: object) -> str:
    """A workbook cell as text: whole floats without `.0`, dates in ISO form."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ") if value.time() != dt.time() else value.date().isoformat()
    return "" if value is None else str(value)


def find_tables(
    grids: Sequence[Grid], columns: Mapping[str, str], name: str, sheet: str | None
) -> list[tuple[Table, Grid]]:
    """Every sheet (or the one named `sheet`) in which all mapped columns are found, with its grid.

    Raises `SourceError` for a missing sheet, a mapped column that is nowhere (near ones are named), a column name
    that stands twice, or tables without data rows.
    """
    chosen = [grid for grid in grids if sheet is None or grid.sheet == sheet]
    if not chosen:
        raise SourceError(f"{name} has no sheet {sheet!r}", f"its sheets are {', '.join(repr(g.sheet) for g in grids)}")
    if not any(cell.strip() for grid in chosen for row in grid.cells for cell in row):
        raise SourceError(f"{name} holds no cell with text", "provide the table again")
    headers = [_find_header(grid, columns) for grid in chosen]
    wanted = len({normal(c) for c in columns.values()})
    whole = [(grid, h) for grid, h in zip(chosen, headers, strict=True) if h[0] == wanted]
    whole = whole or [max(zip(chosen, headers, strict=True), key=lambda item: item[1][0])]
    tables = []
    for grid, (_, header, start) in whole:
        indices = _map_columns(header, columns, name)
        rows = grid.cells[start:]
        while rows and not any(cell.strip() for cell in rows[-1]):
            rows = rows[:-1]
        if rows:
            tables.append((Table(grid.sheet, header, indices, rows), grid))
    if not tables:
        raise SourceError(f"{name} has a header and no data rows", "provide the table with its rows")
    return tables


def _find_header(grid: Grid, columns: Mapping[str, str]) -> tuple[int, list[str], int]:
    """(mapped columns found, header names, index of the first data row) of the best header band."""
    wanted = {normal(name) for name in columns.values()}
    best: tuple[tuple[int, int, int], list[str], int] = ((-1, 0, 0), [], 0)
    for top in range(min(HEADER_SEARCH_ROWS, len(grid.cells))):
        for height in range(1, HEADER_BAND_ROWS + 1):
            bottom = top + height
            if bottom > len(grid.cells):
                break
            names = _band_names(grid, top, bottom)
            found = len(wanted & {normal(alias) for name in names for alias in _aliases(name)})
            rank = (found, -height, -top)
            if rank > best[0]:
                best = (rank, names, bottom)
        if best[0][0] == len(wanted) and best[0][1] == -1:
            break
    (found, height, top), names, bottom = best
    lowest = max((last for first, _, last, _ in grid.merged if -top <= first < bottom), default=bottom - 1)
    return max(found, 0), names, max(bottom, lowest + 1)


def _band_names(grid: Grid, top: int, bottom: int) -> list[str]:
    """One name per column: the texts of its band, merged cells spread out, joined by ` / `."""
    width = max((len(row) for row in grid.cells[top:bottom]), default=0)
    band = [[*row, *[""] * (width - len(row))] for row in grid.cells[top:bottom]]
    for first, left, last, right in grid.merged:
        if top <= first < bottom and left < width:
            for r in range(first, min(last + 1, bottom)):
                for c in range(left, min(right + 1, width)):
                    band[r - top][c] = band[first - top][left]
    names = []
    for column in range(width):
        parts = [" ".join(row[column].split()) for row in band]
        names.append(" / ".join(dict.fromkeys(part for part in parts if part)))
    return names


def _aliases(name: str) -> Iterable[str]:
    """The ways to name a column under a header band: the whole, and its lowest part."""
    return {name, name.rsplit(" / ", 1)[-1]}


def _map_columns(header: Sequence[str], columns: Mapping[str, str], name: str) -> dict[str, int]:
    indices: dict[str, int] = {}
    missing = []
    for field, wanted in columns.items():
        at = [i for i, n in enumerate(header) if normal(n) == normal(wanted)]
        at = at or [i for i, n in enumerate(header) if normal(wanted) in {normal(a) for a in _aliases(n)}]
        if len(at) > 1:
            raise SourceError(
                f"{name}: the column {wanted!r} (for {field}) stands there {len(at)} times",
                "rename one of them in the file",
            )
        if at:
            indices[field] = at[0]
        else:
            missing.append((field, wanted))
    if missing:
        present = [n for n in header if n]
        near = sorted({n for _, wanted in missing for n in near_names(wanted, present)})
        words = " and ".join(f"{wanted!r} (for {field})" for field, wanted in missing)
        listed = f"near columns: {', '.join(near)}; " if near else ""
        raise SourceError(
            f"{name} has no column {words}", f"{listed}its columns are {', '.join(present[:20]) or 'not named at all'}"
        )
    return indices


def near_names(wanted: str, names: Sequence[str]) -> list[str]:
    """Up to three names that look like `wanted`."""
    by_normal = {normal(n): n for n in names}
    return [by_normal[n] for n in difflib.get_close_matches(normal(wanted), list(by_normal), n=3, cutoff=0.4)]


def normal(name: str) -> str:
    """A header name for comparison: NFKC, case folded, white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())
