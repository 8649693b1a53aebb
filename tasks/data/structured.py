"""JSON and JSONL tables as grids of text: nested keys become dotted column names, values stay as they are written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specs.errors import SourceError
from tasks.data.encoding import Decoded, visible
from tasks.data.files import encodable
from tasks.data.grid import FlawedRow, Grid, Rows
from tasks.data.quoting import iter_lines

MAX_COLUMNS = 2000
KEY_COLUMN = "key"
"""Name of the column that holds the keys of an object of objects."""


class Doubled(dict[str, Any]):
    """An object in which a key stands twice: one of its values is lost."""


def parse(text: str) -> Any:
    """JSON with numbers as they are written. Raises `ValueError` or `RecursionError`."""
    return json.loads(text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_pairs)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    whole = dict(pairs)
    return whole if len(whole) == len(pairs) else Doubled(whole)


def read_json_grids(decoded: Decoded, name: str) -> list[Grid]:
    """Every table in a JSON document: an array of objects, an object of objects or of columns, at any depth.

    Each is a sheet named by its path of keys. Raises `SourceError` when there is none.
    """
    try:
        whole = parse(decoded.text)
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"{name} is not JSON that can be read: {error}", "give an array of objects, or one object per line (.jsonl)"
        ) from error
    found = list(_tables(whole, ""))
    if not found:
        raise SourceError(f"{name} holds no array of objects", 'give a list such as [{"code": "A1", "meaning": "..."}]')
    return [_grid(sheet, records, decoded, name) for sheet, records in found]


def _tables(value: Any, path: str) -> Iterator[tuple[str, Sequence[Any]]]:
    if isinstance(value, list):
        if any(isinstance(item, dict) for item in value):
            yield path, value
        return
    if not isinstance(value, dict):
        return
    parts = list(value.values())
    if len(parts) > 1 and all(isinstance(v, list) and not any(isinstance(i, dict | list) for i in v) for v in parts):
        lengths = {len(v) for v in parts}
        if len(lengths) == 1:
            yield path, [dict(zip(value, row, strict=True)) for row in zip(*parts, strict=True)]
        return
    if len(parts) > 1 and all(isinstance(part, dict) for part in parts):
        yield path, [type(part)({KEY_COLUMN: key, **part}) for key, part in value.items()]
        return
    for key, part in value.items():
        yield from _tables(part, f"{path}.{key}" if path else key)


def read_jsonl_grid(decoded: Decoded, name: str) -> Grid:
    """One object per line; lines are parsed anew at each reading, so that a large file needs no list of objects."""
    text = decoded.text
    columns: dict[str, None] = {}
    characters = 0
    for record in _lines(text):
        if isinstance(record, dict):
            flat = flatten(record)
            columns.update(dict.fromkeys(flat))
            characters += sum(visible(value) for value in flat.values())
            _check_width(columns, name)
    if not columns:
        raise SourceError(f"{name} holds no JSON object", 'give one object per line, such as {"code": "A1"}')
    header = list(columns)

    def rows() -> Iterator[list[str]]:
        yield header
        for record in _lines(text):
            yield _row(record, header)

    return _as_grid("", Rows(rows), decoded, characters)


def _lines(text: str) -> Iterator[Any]:
    """The object of each line that is not blank, or a row that says why there is none."""
    for line in iter_lines(text):
        if line.strip():
            try:
                yield parse(line)
            except (ValueError, RecursionError):
                yield FlawedRow("not_a_json_object", line.rstrip("\n"))


def _grid(sheet: str, records: Sequence[Any], decoded: Decoded, name: str) -> Grid:
    columns: dict[str, None] = {}
    characters = 0
    for record in records:
        if isinstance(record, dict):
            flat = flatten(record)
            columns.update(dict.fromkeys(flat))
            characters += sum(visible(value) for value in flat.values())
            _check_width(columns, name)
    header = list(columns)

    def rows() -> Iterator[list[str]]:
        yield header
        for record in records:
            yield _row(record, header)

    return _as_grid(sheet, Rows(rows), decoded, characters)


def _as_grid(sheet: str, rows: Rows, decoded: Decoded, characters: int) -> Grid:
    """The grid; characters are those of the values, because brackets and keys are the form of the file."""
    cells = iter(rows)
    next(cells, None)
    out = sum(
        visible("".join(row)) for row in cells if not isinstance(row, FlawedRow) or row.reason == "key_stands_twice"
    )
    return Grid(
        sheet=sheet,
        cells=rows,
        encoding=decoded.encoding,
        found_by=decoded.found_by,
        characters_in=characters,
        characters_out=out,
        replaced=decoded.text.count("\ufffd"),
    )


def _check_width(columns: Mapping[str, None], name: str) -> None:
    if len(columns) > MAX_COLUMNS:
        raise SourceError(
            f"{name} has more than {MAX_COLUMNS} different keys",
            "give records that share their keys",
        )


def _row(record: Any, header: Sequence[str]) -> list[str]:
    if isinstance(record, FlawedRow):
        return record
    if not isinstance(record, dict):
        return FlawedRow("not_a_json_object", as_json(record))
    flat = flatten(record)
    cells = [flat.get(column, "") for column in header]
    if _has_doubled(record):
        return FlawedRow("key_stands_twice", as_json(record), cells)
    if not all(map(encodable, cells)):
        return FlawedRow("damaged_text", as_json(record), cells)
    return cells


def _has_doubled(record: dict[str, Any]) -> bool:
    left = [record]
    while left:
        value = left.pop()
        if isinstance(value, Doubled):
            return True
        left.extend(part for part in value.values() if isinstance(part, dict))
    return False


def flatten(record: dict[str, Any]) -> dict[str, str]:
    """Dotted key to text. A list of plain values is one value per line; a list of objects stays JSON.

    Without a call for each level: objects within objects are as deep as a file has them.
    """
    flat: dict[str, str] = {}
    left = [*reversed(record.items())]
    while left:
        name, value = left.pop()
        if isinstance(value, dict):
            left.extend((f"{name}.{key}", part) for key, part in reversed(value.items()))
        else:
            flat[name] = value_text(value)
    return flat


def value_text(value: Any) -> str:
    """A value as a cell: null is empty, true and false as JSON writes them."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        if any(isinstance(item, dict | list) for item in value):
            return as_json(value)
        return "\n".join(value_text(item) for item in value)
    return str(value)


def as_json(record: Any) -> str:
    """A record as text; a lone surrogate stays an escape, because UTF-8 has no form for it."""
    text = json.dumps(record, ensure_ascii=False, sort_keys=True)
    return text if encodable(text) else json.dumps(record, sort_keys=True)
