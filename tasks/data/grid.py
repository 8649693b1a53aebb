"""A sheet as rows of text that can be read again and again, whether they lie in memory or are parsed anew each time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

HEAD_ROWS = 5000
"""Rows that are looked at before a table is read: for its header and for what its columns usually hold."""


class FlawedRow(list[str]):
    """A row that cannot be trusted: `reason` says why, `original` is its text in the file."""

    __slots__ = ("original", "reason")

    def __init__(self, reason: str, original: str, cells: Iterable[str] = ()) -> None:
        super().__init__(cells)
        self.reason = reason
        self.original = original


class Rows:
    """Rows of text, read anew by each iteration; `count` reaches to the last row that holds text."""

    def __init__(self, source: list[list[str]] | Callable[[], Iterator[list[str]]], count: int | None = None) -> None:
        self._open = source if callable(source) else lambda: iter(source)
        self.count = last_filled(self._open()) if count is None else count

    def __iter__(self) -> Iterator[list[str]]:
        return islice(self._open(), self.count)

    def __len__(self) -> int:
        return self.count

    def head(self, number: int = HEAD_ROWS) -> list[list[str]]:
        """The first rows."""
        return list(islice(iter(self), number))


def last_filled(rows: Iterator[list[str]]) -> int:
    """1-based number of the last row that holds text."""
    last = 0
    for number, row in enumerate(rows, start=1):
        if isinstance(row, FlawedRow) or any(cell.strip() for cell in row):
            last = number
    return last


@dataclass(frozen=True, slots=True)
class Grid:
    """All cells of a sheet. `merged` are (first row, first column, last row, last column), from 0.

    `noticed` counts what a person should know of the file; `dialect` is how quotes are written, for text tables.
    """

    sheet: str
    cells: Rows
    merged: tuple[tuple[int, int, int, int], ...] = ()
    encoding: str = ""
    found_by: str = ""
    characters_in: int = 0
    characters_out: int = 0
    replaced: int = 0
    dialect: str = ""
    noticed: Mapping[str, int] = field(default_factory=dict)
