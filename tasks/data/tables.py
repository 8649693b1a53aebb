"""Tables under their header: title rows and merged header bands found, columns mapped, merged rows filled down."""

from __future__ import annotations

import difflib
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from specs.errors import SourceError
from tasks.data.grid import FlawedRow, Grid, Rows

HEADER_SEARCH_ROWS = 30
HEADER_BAND_ROWS = 3


@dataclass(frozen=True, slots=True)
class Table:
    """A sheet under its header: `columns` maps our fields to column indices; `rows` start below the header band.

    `filled` counts cells that a vertical merge left empty and that hold its text now.
    """

    sheet: str
    header: list[str]
    columns: dict[str, int]
    rows: Rows
    filled: int = 0

    def location(self, number: int) -> str:
        """Where data row `number` (1-based) is."""
        return f"{self.sheet}#{number}"

    def value(self, row: Sequence[str], field: str) -> str:
        """The cell of our `field` in `row`, or an empty string."""
        at = self.columns.get(field)
        return row[at].strip() if at is not None and at < len(row) else ""


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
    if not any(grid.cells.count for grid in chosen):
        raise SourceError(f"{name} holds no cell with text", "provide the table again")
    headers = [_find_header(grid, columns) for grid in chosen]
    wanted = len({normal(c) for c in columns.values()})
    whole = [(grid, h) for grid, h in zip(chosen, headers, strict=True) if h[0] == wanted]
    whole = whole or [max(zip(chosen, headers, strict=True), key=lambda item: item[1][0])]
    tables = []
    for grid, (_, header, start) in whole:
        indices = _map_columns(header, columns, name)
        if grid.cells.count > start:
            tables.append((_table(grid, header, indices, start), grid))
    if not tables:
        raise SourceError(f"{name} has a header and no data rows", "provide the table with its rows")
    return tables


def _table(grid: Grid, header: list[str], indices: dict[str, int], start: int) -> Table:
    """The rows below the header band. A cell merged over several rows holds for each of them."""
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    filled = 0
    for first, left, last, _ in grid.merged:
        for row in range(first + 1, last + 1 if first >= start else 0):
            spans[row].append((first, left))
            filled += 1

    def rows() -> Iterator[list[str]]:
        tops: dict[tuple[int, int], str] = {}
        wanted = {top for above in spans.values() for top in above}
        for number, row in enumerate(grid.cells):
            if number < start:
                continue
            if spans:
                row = row if isinstance(row, FlawedRow) else list(row)
                for first, left in spans.get(number, ()):
                    row.extend([""] * (left + 1 - len(row)))
                    row[left] = row[left] or tops.get((first, left), "")
                tops.update({(r, c): row[c] for r, c in wanted if r == number and c < len(row)})
            yield row

    return Table(grid.sheet, header, indices, Rows(rows, grid.cells.count - start), filled)


def _find_header(grid: Grid, columns: Mapping[str, str]) -> tuple[int, list[str], int]:
    """(mapped columns found, header names, index of the first data row) of the best header band."""
    wanted = {normal(name) for name in columns.values()}
    best: tuple[tuple[int, int, int], list[str], int] = ((-1, 0, 0), [], 0)
    cells = grid.cells.head(HEADER_SEARCH_ROWS + HEADER_BAND_ROWS)
    for top in range(min(HEADER_SEARCH_ROWS, len(cells))):
        for height in range(1, HEADER_BAND_ROWS + 1):
            bottom = top + height
            if bottom > len(cells):
                break
            names = band_names(cells, grid.merged, top, bottom)
            found = len(wanted & {normal(alias) for name in names for alias in _aliases(name)})
            rank = (found, -height, -top)
            if rank > best[0]:
                best = (rank, names, bottom)
        if best[0][0] == len(wanted) and best[0][1] == -1:
            break
    (found, height, top), names, bottom = best
    lowest = max((last for first, _, last, _ in grid.merged if -top <= first < bottom), default=bottom - 1)
    return max(found, 0), names, max(bottom, lowest + 1)


def band_names(
    cells: Sequence[list[str]], merged: Sequence[tuple[int, int, int, int]], top: int, bottom: int
) -> list[str]:
    """One name per column: the texts of its band, merged cells spread out, joined by ` / `."""
    width = max((len(row) for row in cells[top:bottom]), default=0)
    band = [[*row, *[""] * (width - len(row))] for row in cells[top:bottom]]
    for first, left, last, right in merged:
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
