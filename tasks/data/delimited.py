"""CSV and TSV text as a grid: the delimiter and the way quotes are written are found, nothing is changed."""

from __future__ import annotations

import csv
import re
import sys
from itertools import islice

from specs.errors import SourceError
from tasks.data.encoding import Decoded, visible
from tasks.data.grid import Grid, Rows
from tasks.data.quoting import Scan, iter_lines, iter_rows, scan

_DELIMITERS = (",", ";", "\t", "|")
_HEAD_LINES = 200
_ESCAPED = re.compile(r'\\(["\\])')
BACKSLASH = "backslash quotes"


def read_delimited(decoded: Decoded, name: str) -> Grid:
    """A CSV or TSV text as a grid; the delimiter is the one that gives the most consistent rows.

    Quotes written as `\\"` are read as such only where that makes every row regular and doubled quotes do not.
    Raises `SourceError`, with the line, for quotes that swallow rows.
    """
    text = decoded.text
    delimiter = "\t" if name.lower().removesuffix(".gz").endswith(".tsv") else find_delimiter(text)
    dialect, text, found = _dialect(text, delimiter, name)
    return Grid(
        sheet="",
        cells=Rows(lambda: iter_rows(text, delimiter), found.count),
        encoding=decoded.encoding,
        found_by=decoded.found_by,
        characters_in=visible(text, delimiter + '"'),
        characters_out=found.characters,
        replaced=text.count("\ufffd"),
        dialect=dialect,
        noticed={"backslash_quotes": 1} if dialect else {},
    )


def _dialect(text: str, delimiter: str, name: str) -> tuple[str, str, Scan]:
    """(dialect, text with doubled quotes, its scan)."""
    refused: SourceError | None = None
    plain = Scan()
    try:
        plain = scan(text, delimiter, name)
    except SourceError as error:
        refused = error
    if '\\"' in text and (refused or plain.irregular):
        doubled = _ESCAPED.sub(lambda match: '""' if match.group(1) == '"' else "\\", text)
        try:
            escaped = scan(doubled, delimiter, name)
        except SourceError:
            escaped = plain
        if escaped is not plain and not escaped.irregular:
            return BACKSLASH, doubled, escaped
    if refused:
        raise refused
    return "", text, plain


def find_delimiter(text: str) -> str:
    """Of comma, semicolon, tab and bar, the one under which most of the first lines have the same number of cells."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    head = list(islice(iter_lines(text), _HEAD_LINES))
    best, best_score = ",", -1.0
    for candidate in _DELIMITERS:
        widths = [len(row) for row in csv.reader(head, delimiter=candidate) if row]
        if not widths:
            continue
        usual = max(set(widths), key=lambda w: (widths.count(w), w))
        score = widths.count(usual) / len(widths) * (usual > 1) + min(usual, 50) / 1000
        if score > best_score:
            best, best_score = candidate, score
    return best
