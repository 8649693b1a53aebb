"""Quotes in delimited text: the rows of a table, refused where a quote that is not closed has swallowed other rows."""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from collections.abc import Sequence

from specs.errors import SourceError

ROWS_ALIKE = 2
ROWS_ALIKE_IN_TWO_COLUMNS = 8
"""So many lines inside one cell that have the delimiters of a row are rows; one comma a line is also plain prose."""
_WAY_OUT = 'double the quote ("") or close it in that row, then save the file'


def rows_of(text: str, delimiter: str, name: str) -> list[list[str]]:
    """Rows that are not empty. Raises `SourceError`, with the line, for a quote that is open or swallows rows."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows: list[list[str]] = []
    spans: list[tuple[int, int]] = []
    before = last = 0
    try:
        for row in reader:
            if reader.line_num > before + 1:
                spans.append((before, reader.line_num))
            last, before = before, reader.line_num
            if row:
                rows.append(row)
    except csv.Error as error:
        raise SourceError(
            f"{name}:{reader.line_num} is not a readable table: {error}", "save it as CSV again"
        ) from error
    lines = text.split("\n")
    if before == last + 1 and len(list(csv.reader([f"{lines[last]}\n", "x"], delimiter=delimiter))) == 1:
        spans.append((last, before))  # the quote of the last line is still open
    if spans:
        usual = _usual_delimiters(lines, spans, delimiter)
        for first, end in spans:
            _check_span(lines[first:end], first + 1, delimiter, usual, name)
    return rows


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
