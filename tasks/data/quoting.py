"""Quotes in delimited text: the rows of a table, refused where a quote that is not closed has swallowed other rows."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from specs.errors import SourceError
from tasks.data.encoding import visible

ROWS_ALIKE = 2
ROWS_ALIKE_IN_TWO_COLUMNS = 8
"""So many lines inside one cell that have the delimiters of a row are rows; one comma a line is also plain prose."""
_WAY_OUT = 'double the quote ("") or close it in that row, then save the file'


@dataclass(slots=True)
class Scan:
    """What one pass over a table counts. `widths` are the rows by their number of cells."""

    count: int = 0
    characters: int = 0
    widths: Counter[int] = field(default_factory=Counter)

    @property
    def irregular(self) -> int:
        """Rows that do not have the usual number of cells."""
        return self.widths.total() - max(self.widths.values(), default=0)


def iter_lines(text: str) -> Iterator[str]:
    """The lines of a text with their line ends, without a second copy of the text."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def iter_rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """Rows that are not empty lines; `scan` has checked that they can be trusted."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    return (row for row in csv.reader(iter_lines(text), delimiter=delimiter) if row)


def scan(text: str, delimiter: str, name: str) -> Scan:
    """One pass over all rows. Raises `SourceError`, with the line, for a quote that is open or swallows rows."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    reader = csv.reader(iter_lines(text), delimiter=delimiter)
    found, number = Scan(), 0
    spans: list[tuple[int, int]] = []
    before = last = 0
    structure = delimiter + '"'
    try:
        for row in reader:
            if reader.line_num > before + 1:
                spans.append((before, reader.line_num))
            last, before = before, reader.line_num
            if row:
                number += 1
                found.widths[len(row)] += 1
                characters = visible("".join(row), structure)
                found.characters += characters
                if characters or any(cell.strip() for cell in row):
                    found.count = number
    except csv.Error as error:
        raise SourceError(
            f"{name}:{reader.line_num} is not a readable table: {error}", "save it as CSV again"
        ) from error
    if before == last + 1 and _open_at_end(text, delimiter):
        spans.append((last, before))
    if spans:
        lines = text.split("\n")
        usual = _usual_delimiters(lines, spans, delimiter)
        for first, end in spans:
            _check_span(lines[first:end], first + 1, delimiter, usual, name)
    return found


def rows_of(text: str, delimiter: str, name: str) -> list[list[str]]:
    """Rows that are not empty, checked by `scan`."""
    scan(text, delimiter, name)
    return list(iter_rows(text, delimiter))


def _open_at_end(text: str, delimiter: str) -> bool:
    """Whether the quote of the last line is still open."""
    body = text.removesuffix("\n")
    line = body[body.rfind("\n") + 1 :]
    return len(list(csv.reader([f"{line}\n", "x"], delimiter=delimiter))) == 1


def _usual_delimiters(lines: Sequence[str], spans: Sequence[tuple[int, int]], delimiter: str) -> int:
    """How many delimiters most lines have that are a row of their own; with no such line, most lines."""
    inside = {number for first, end in spans for number in range(first, end)}
    alone = [line for number, line in enumerate(lines) if number not in inside and line.strip()]
    counts = Counter(line.count(delimiter) for line in (alone or lines))
    return max(counts, key=lambda n: (counts[n], n))


def _check_span(lines: Sequence[str], number: int, delimiter: str, usual: int, name: str) -> None:
    """Check the physical lines, from line `number` on, of one row with a cell over several lines."""
    try:
        list(csv.reader([f"{line}\n" for line in lines], delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise SourceError(
            f"{name}:{number}: a quote opens a cell that does not end well before line {number + len(lines) - 1}",
            _WAY_OUT,
        ) from error
    between = lines[1:-1]
    alike = sum(line.count(delimiter) == usual for line in between)
    enough = ROWS_ALIKE_IN_TWO_COLUMNS if usual == 1 else ROWS_ALIKE
    if usual and alike >= enough and 2 * alike >= len(between):
        raise SourceError(
            f"{name}:{number}: a quote opens a cell that holds {alike} lines which look like rows of the table",
            _WAY_OUT,
        )
