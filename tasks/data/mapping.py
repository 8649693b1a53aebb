"""A column mapping proposed from a file itself, ready to paste, with the first rows as it would read them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specs.base import Language
from specs.errors import SourceError
from tasks.data.grid import Grid
from tasks.data.grids import read_grids
from tasks.data.records import SourceFile
from tasks.data.synonyms import NEEDED, TableKind, comparable, fields_of_name, propose
from tasks.data.tables import HEADER_BAND_ROWS, HEADER_SEARCH_ROWS, band_names, find_tables

PREVIEW_ROWS = 5
_TEXTS = frozenset({"phenomenon", "steps", "repair", "meaning", "cause", "remedy"})
_NUMBER = re.compile(r"[-+]?[\d ]*[.,]?\d*")
_CELL_WIDTH = 40


ONE_TEXT = (
    "where one column tells problem and repair in one text, write these texts to a .txt file, one per paragraph, "
    "and read it with kind: notes: rules divide each text"
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Our fields to headers; `missing` are needed fields for which no header was found."""

    columns: dict[str, str]
    missing: tuple[str, ...]
    header: list[str] = field(default_factory=list)
    rows: list[dict[str, str]] = field(default_factory=list)

    def text(self) -> str:
        """The line for project.yaml, and how five rows would read with it."""
        named = ", ".join(f"{name}: {json.dumps(header, ensure_ascii=False)}" for name, header in self.columns.items())
        lines = [f"columns: {{{named}}}"] if named else []
        if self.missing:
            listed = ", ".join(json.dumps(name, ensure_ascii=False) for name in self.header[:20] if name)
            lines.append(
                f"no column is called like {' or '.join(self.missing)}; the columns are {listed or 'not named'}"
            )
            if self.missing == ("repair",):
                lines.append(ONE_TEXT)
        lines += [f"row {n}: {preview_text(row)}" for n, row in enumerate(self.rows, start=1)]
        return "\n".join(f"      {line}" for line in lines)


def preview_text(row: Mapping[str, str]) -> str:
    """One mapped row in one line, long cells shortened."""
    shown = {name: " ".join(value.split()) for name, value in row.items() if value.strip()}
    cut = {
        name: value if len(value) <= _CELL_WIDTH else value[: _CELL_WIDTH - 1] + "…" for name, value in shown.items()
    }
    return " | ".join(f"{name}: {value}" for name, value in cut.items())


def propose_mapping(
    file: SourceFile, kind: TableKind, language: Language, encoding: str = "auto", sheet: str | None = None
) -> Proposal | None:
    """The mapping that the headers of a file suggest; None where it cannot be read or holds no rows."""
    try:
        grids = [g for g in read_grids(file, encoding) if (sheet is None or g.sheet == sheet) and g.cells.count > 1]
    except SourceError:
        return None
    if not grids:
        return None
    header = max((_header(grid, kind) for grid in grids), key=lambda names: _known(names, kind))
    columns = propose(header, kind, language)
    rows = _preview(grids, columns, file.name, sheet) if columns else []
    says_nothing = [
        f for f in columns if f in _TEXTS and rows and all(_NUMBER.fullmatch(row.get(f, "")) for row in rows)
    ]
    for name in says_nothing:  # a count or a flag that is called like a text
        del columns[name]
    missing = tuple(name for name in NEEDED[kind] if name not in columns)
    return Proposal(
        columns, missing, header, [{f: row[f] for f in columns if f in row} for row in rows] if columns else []
    )


def _header(grid: Grid, kind: TableKind) -> list[str]:
    """The names of the band with most known names; where none is known, of the first row that is filled most."""
    cells = grid.cells.head(HEADER_SEARCH_ROWS + HEADER_BAND_ROWS)
    bands = [
        (names, -height, -top)
        for height in range(1, HEADER_BAND_ROWS + 1)
        for top in range(min(HEADER_SEARCH_ROWS, len(cells) - height + 1))
        if (names := band_names(cells, grid.merged, top, top + height)) and (top == 0 or _may_be_header(names))
    ]
    best = max(bands, key=lambda band: (_known(band[0], kind), *band[1:]))
    if _known(best[0], kind):
        return best[0]
    return max(cells[:HEADER_SEARCH_ROWS], key=lambda row: sum(bool(cell.strip()) for cell in row))


def _may_be_header(names: Sequence[str]) -> bool:
    """Whether a row below the first can be a header: no name twice and none a number, as rows of data have them."""
    filled = [comparable(name) for name in names if name.strip()]
    return len(set(filled)) == len(filled) and not any(map(_NUMBER.fullmatch, filled))


def _known(names: Sequence[str], kind: TableKind) -> int:
    """How many columns are called as some field is called."""
    known = fields_of_name(kind)
    return sum(comparable(name.replace(" / ", ".").rsplit(".", 1)[-1]) in known for name in names if name)


def _preview(grids: Sequence[Grid], columns: Mapping[str, str], name: str, sheet: str | None) -> list[dict[str, str]]:
    try:
        table, _ = find_tables(grids, columns, name, sheet)[0]
    except SourceError:
        return []
    return [{field: table.value(row, field) for field in table.columns} for row in table.rows.head(PREVIEW_ROWS)]
