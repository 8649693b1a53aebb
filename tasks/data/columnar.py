"""Parquet as a grid of text, batch by batch: numbers as they are, times in ISO form, nulls and NaN as empty cells."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specs.errors import SourceError
from tasks.data.encoding import visible
from tasks.data.files import MAX_UNPACKED_BYTES
from tasks.data.grid import Grid, Rows
from tasks.data.records import SourceFile
from tasks.data.structured import MAX_COLUMNS, flatten, value_text

MAX_ROWS = 50_000_000
_BATCH_ROWS = 4096


def read_parquet(file: SourceFile) -> Grid:
    """The table of a Parquet file; nested columns get dotted names. Raises `SourceError` for damage and past caps."""
    try:
        header, rows, counted = _open(file)
        characters = count = 0
        for number, row in enumerate(rows, start=1):
            found = visible("".join(row))
            characters += found
            count = number if found else count
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SourceError(
            f"{file.name} is not a Parquet file that can be read: {str(error)[:200]}", "write it again"
        ) from error

    def cells() -> Iterator[list[str]]:
        yield header
        yield from _open(file)[1]

    return Grid(
        sheet="",
        cells=Rows(cells, count + 1),
        encoding="parquet",
        found_by="file format",
        characters_in=characters,
        characters_out=characters,
        noticed={"nan_values": counted["nan"]} if counted["nan"] else {},
    )


def _open(file: SourceFile) -> tuple[list[str], Iterator[list[str]], dict[str, int]]:
    """(header, rows, counts that grow while the rows are read)."""
    opened = pq.ParquetFile(file.path)
    check_parquet_caps(opened.metadata, file.name)
    names = _flat(opened.schema_arrow.empty_table()).column_names
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SourceError(f"{file.name}: the column {twice!r} stands there twice", "rename one of them")
    counted = {"nan": 0}
    return names, _rows(opened, counted), counted


def check_parquet_caps(metadata: Any, name: str) -> None:
    """Raise `SourceError` for a file that unpacks to too much; its own figures say so before anything is read."""
    unpacked = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    if unpacked > MAX_UNPACKED_BYTES or metadata.num_rows > MAX_ROWS or metadata.num_columns > MAX_COLUMNS:
        raise SourceError(
            f"{name} holds {metadata.num_rows} rows, {metadata.num_columns} columns and {unpacked} bytes, "
            f"above the caps of {MAX_ROWS}, {MAX_COLUMNS} and {MAX_UNPACKED_BYTES}",
            "split the file into parts",
        )


def _rows(opened: Any, counted: dict[str, int]) -> Iterator[list[str]]:
    for batch in opened.iter_batches(batch_size=_BATCH_ROWS):
        table = _flat(pa.Table.from_batches([batch]))
        columns = [[_text(value, counted) for value in column.to_pylist()] for column in table.columns]
        if columns:
            yield from (list(row) for row in zip(*columns, strict=True))


def _flat(table: Any) -> Any:
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


def _text(value: object, counted: dict[str, int]) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, float) and not math.isfinite(value):
        counted["nan"] += 1
        return ""
    if isinstance(value, bytes):
        return value.decode()  # text of an old writer; other bytes raise ValueError
    if isinstance(value, list):
        return value_text([flatten(v) if isinstance(v, dict) else _text(v, counted) for v in value])
    return scalar_text(value)


def scalar_text(value: object) -> str:
    """A typed value as text: whole floats without `.0`, times in ISO form, as a person would have written it."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, dt.datetime):
        plain = value.time() == dt.time() and value.tzinfo is None
        return value.date().isoformat() if plain else value.isoformat(sep=" ")
    return f"{value:f}" if isinstance(value, Decimal) else "" if value is None else str(value)
