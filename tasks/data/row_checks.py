"""What makes a row of a table unfit for a sample: empty, repeated header, shifted cells, damage, nothing said."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from specs.errors import SourceError
from tasks.data.grid import FlawedRow
from tasks.data.records import FateName
from tasks.data.synonyms import TableKind, comparable, fields_of_name
from tasks.data.tables import Table, normal

NULLS = frozenset({"", "-", "--", "---", "—", "/", "\\", "n/a", "none", "null", "nan", "nil", "?", "无", "暂无", "空"})
"""Words for nothing. `NA` is not among them: it may be a code."""
_LONGEST_NULL = 8
NULL_TEXTS = NULLS | {"na", "不详", "未填", "未知", "unknown"}
_PLACEHOLDER = re.compile(
    r"(?:test|testing|asdf\w*|qwer\w*|x{2,}|\.+|tbd|todo|测试|待定|待补充|#(?:ref|n/a|value)[!?]?)", re.I
)
_UNFINISHED = re.compile(
    r"(?:still )?(?:open|pending|waiting(?: for parts?)?|not (?:yet )?(?:fixed|repaired|done)|in progress)(?: yet)?\.?"
    r"|待处理|未处理|未修复|待维修|处理中|等待备件|待件|未完成",
    re.IGNORECASE,
)
_DAMAGED = re.compile("[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f\ue000-\uf8ff]|锟斤拷|烫烫烫|屯屯屯|Ã[\u0080-\u00bf]|â€")
_BACKSLASHED = re.compile(r'\\\w?\\?"')
_PROFILE_ROWS = 30
_STRICT = 0.98
_NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+(?:[eE][-+]?\d+)?%?")
_DATE = re.compile(r"\d{1,4}[-/.年]\d{1,2}[-/.月]\d{1,4}日?(?:[ T].*)?")

Fate = tuple[FateName, str]


@dataclass(frozen=True, slots=True)
class Profile:
    """What the cells of a column look like, where nearly all of them look alike: a pattern or a few words."""

    pattern: re.Pattern[str] | None = None
    words: frozenset[str] = frozenset()

    def fits(self, cell: str) -> bool:
        """Whether a cell that is not empty looks like the others."""
        return bool(self.pattern.fullmatch(cell)) if self.pattern else cell in self.words


def profiles_of(rows: Sequence[Sequence[str]], width: int) -> dict[int, Profile]:
    """The columns whose cells look alike, by index: numbers, dates, or at most 20 words that come back all the time."""
    found: dict[int, Profile] = {}
    for at in range(width):
        cells = [row[at].strip() for row in rows if at < len(row) and row[at].strip()]
        if len(cells) < _PROFILE_ROWS:
            continue
        for pattern in (_NUMBER, _DATE):
            if sum(bool(pattern.fullmatch(cell)) for cell in cells) >= _STRICT * len(cells):
                found[at] = Profile(pattern)
        common = frozenset(word for word, count in Counter(cells).most_common(20) if count > 1)
        if at not in found and sum(cell in common for cell in cells) >= _STRICT * len(cells):
            found[at] = Profile(words=common)
    return found


class RowCheck:
    """The rules for the rows of one table. `problem` gives the fate of a row that cannot become a sample."""

    def __init__(self, table: Table, kind: TableKind, needed: Sequence[str], file_name: str) -> None:
        self._table, self._kind, self._needed, self._file = table, kind, needed, file_name
        self._header = [normal(name) for name in table.header]
        self._names = {*self._header, *fields_of_name(kind)} - {""}
        self._longest = 2 * max(map(len, self._names))
        self._profiles = profiles_of(table.rows.head(), len(table.header))

    def problem(self, row: Sequence[str], location: str) -> Fate | None:
        """(fate, reason) of a row that cannot become a sample, or None.

        Raises `SourceError` for a row that names the columns again in another order: all rows below would be wrong.
        """
        if isinstance(row, FlawedRow):
            return "quarantined", row.reason
        if not any(cell.strip() for cell in row):
            return "out_of_scope", "empty_row"
        if self._names_columns(row, location):
            return "out_of_scope", "repeated_header"
        if any(cell.strip() for cell in row[len(self._header) :]):
            return "quarantined", "more_cells_than_columns"
        if self._shifted(row):
            return "quarantined", "cells_shifted"
        return self._wrong_values({name: self._table.value(row, name) for name in self._table.columns})

    def _wrong_values(self, values: Mapping[str, str]) -> Fate | None:
        said = "\n".join(values.values())
        if _DAMAGED.search(said):
            return "quarantined", "damaged_text"
        if "\\" in said and _BACKSLASHED.search(said):
            return "quarantined", "backslash_before_quote"
        for name in self._needed:
            text = field_text(values[name])
            if not text or (name != "fault_type" and not says_something(text)):
                return "quarantined", f"no_{name}"
            if _PLACEHOLDER.fullmatch(text):
                return "quarantined", "placeholder_text"
        if "repair" in self._needed and _UNFINISHED.fullmatch(field_text(values["repair"])):
            return "quarantined", "not_repaired"
        return None

    def _names_columns(self, row: Sequence[str], location: str) -> bool:
        """Whether a row is a header again; an error when its columns stand in another order than the first header's."""
        mapped = self._table.columns
        cells = {field: row[at] for field, at in mapped.items() if at < len(row)}
        if not all(self._is_name(cells.get(f, "")) for f in self._needed):
            return False
        same = {field for field, cell in cells.items() if normal(cell) == self._header[mapped[field]]}
        if len(same) == len(mapped):
            return True
        own = {self._header[at]: field for field, at in mapped.items()}
        meant = {field: self._meant(cell, own) for field, cell in cells.items()}
        moved = {f: cells[f] for f, fields in meant.items() if f not in same and fields and f not in fields}
        if len(moved) >= 2 or (moved and len(same) + len(moved) == len(mapped)):
            names = ", ".join(repr(cell.strip()) for cell in moved.values())
            raise SourceError(
                f"{self._file}, row {location}: a second header names the columns in another order ({names})",
                "put that section into a file or sheet of its own, or bring its columns into the order of the first",
            )
        return sum(bool(fields) and field in fields for field, fields in meant.items()) >= max(2, len(mapped) - 1)

    def _is_name(self, cell: str) -> bool:
        return len(cell) <= self._longest and bool(cell.strip()) and not self._names.isdisjoint(_forms(cell))

    def _meant(self, cell: str, own: Mapping[str, str]) -> frozenset[str]:
        """The fields that a header cell may stand for: the mapped one of that name, else by synonyms."""
        known = own.get(normal(cell))
        return frozenset({known}) if known else fields_of_name(self._kind).get(comparable(cell), frozenset())

    def _shifted(self, row: Sequence[str]) -> bool:
        """Whether a cell is unlike its column but like the one beside it, whose own cell is unlike that column too.

        That is how a delimiter inside an unquoted text shows in a row that still has the right number of cells.
        """
        wrong = {}
        for at, profile in self._profiles.items():
            cell = row[at].strip() if at < len(row) else ""
            if cell and not profile.fits(cell):
                wrong[at] = cell
        return any(
            beside in wrong and self._profiles[beside].fits(cell)
            for at, cell in wrong.items()
            for beside in (at - 1, at + 1)
        )


@lru_cache(maxsize=4096)
def _forms(cell: str) -> tuple[str, str]:
    """A cell in the two forms in which names of columns are compared."""
    return normal(cell), comparable(cell)


_SAYS = re.compile(r"(?:[^\W\d_][\W\d_]*){3}|[\u4e00-\u9fff][^\u4e00-\u9fff]*[\u4e00-\u9fff]")


def says_something(text: str) -> bool:
    """At least two Chinese characters or three letters, and no null word."""
    return bool(_SAYS.search(text)) and not (len(text) <= _LONGEST_NULL and normal(text) in NULL_TEXTS)


def field_text(value: str) -> str:
    """A cell as a field: NFC, white space collapsed within lines, null words empty."""
    if "\n" in value:
        text = "\n".join(filter(None, (" ".join(line.split()) for line in value.split("\n"))))
    else:
        text = " ".join(value.split())
    text = unicodedata.normalize("NFC", text)
    return "" if len(text) <= _LONGEST_NULL and normal(text) in NULLS else text
