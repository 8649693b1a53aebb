"""Small tables of added stages: CSV as people's programs save it, and the samples as rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.errors import InputError
from specs.files import write_bytes

_DELIMITERS = (",", ";", "\t")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def read_csv(path: Path, needed: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a CSV file by header, without surrounding blanks. UTF-8, or GB18030 as Chinese Excel saves it.

    Raises `InputError` for another encoding, a workbook, a header that lacks a column, or a row with cells beyond it.
    """
    data = path.read_bytes()
    if data[:2] == b"PK" or data[:4] == b"\xd0\xcf\x11\xe0":
        raise InputError(f"{path.name} is a workbook, not a CSV file", "save the sheet as CSV and use that file")
    text = _decoded(data, path.name)
    first = text.splitlines()[0] if text.strip() else ""
    delimiter = max(_DELIMITERS, key=first.count)
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise InputError(f"{path.name} is no CSV file: {error}", "save the sheet as CSV again") from None
    if long := next((number for number, row in enumerate(rows, start=2) if None in row), None):
        raise InputError(
            f"row {long} of {path.name} has more cells than its first line",
            "put text that holds the separator in quotes; nothing of a row is left out",
        )
    headers = [
        (h or "").strip() for h in (rows[0].keys() if rows else next(csv.reader([first], delimiter=delimiter), []))
    ]
    if missing := [name for name in needed if name not in headers]:
        raise InputError(
            f"{path.name} has no column {', '.join(missing)}", f"its first line must name {', '.join(needed)}"
        )
    return [{(k or "").strip(): (v or "").strip() for k, v in row.items() if isinstance(v, str | None)} for row in rows]


def _decoded(data: bytes, name: str) -> str:
    for encoding in ("utf-8-sig", "gb18030"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise InputError(f"{name} is neither UTF-8 nor GB18030", "save it as CSV UTF-8")


def write_csv(
    path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, str]], *, for_people: bool = False
) -> None:
    """Write a CSV file in UTF-8. For people: with a mark that Excel needs, and no cell that it would compute."""
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, columns, lineterminator="\r\n" if for_people else "\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _plain(row[name]) if for_people else row[name] for name in columns})
    write_bytes(path, buffer.getvalue().encode("utf-8-sig" if for_people else "utf-8"))


def _plain(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def read_samples(path: Path) -> list[dict[str, Any]]:
    """The rows of samples.parquet."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows
