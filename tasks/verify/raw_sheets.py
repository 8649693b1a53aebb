"""Raw tables read again, by other code than the data stage's: each format into sheets of text rows.

XLSX is read from its XML here, XLS by xlrd, Parquet by polars; the stage uses calamine and pyarrow.
"""

from __future__ import annotations

import csv
import datetime as dt
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Sheet:
    """`rows` begins anew at each call. `merged` are (first row, first column, last row, last column), from 0."""

    name: str
    rows: Callable[[], Iterator[list[str]]]
    merged: tuple[tuple[int, int, int, int], ...] = ()
    named: bool = False
    """Whether the first row are names that the format keeps apart from the values."""


def ending(name: str) -> str:
    """The format that a file's name tells, `.gz` left off."""
    return name.lower().removesuffix(".gz").rpartition(".")[2]


def sheets_of(name: str, path: Path, text: Callable[[], str], delimiter: Callable[[str, str], str]) -> list[Sheet]:
    """Every sheet of a table file; `text` gives the decoded text of text formats."""
    kind = ending(name)
    if kind == "xlsx":
        from tasks.verify.raw_xlsx import xlsx_sheets

        return [Sheet(n, partial(iter, cells), merged) for n, cells, merged in xlsx_sheets(path)]
    if kind == "xls":
        return _xls(path)
    if kind == "parquet":
        return [_parquet(path)]
    if kind == "pdf":
        return _pdf(path)
    content = text()
    if kind == "json":
        whole = json.loads(content, parse_int=str, parse_float=str, parse_constant=str)
        return [_records(n, records) for n, records in record_lists(whole, ())]
    if kind == "jsonl":
        lines = [line for line in content.split("\n") if line.strip()]
        return [_records("", [_object(line) for line in lines])]
    mark = delimiter(content, name)
    content = doubled_quotes(content, mark)
    csv.field_size_limit(2**31 - 1)
    return [Sheet("", lambda: (row for row in csv.reader(_lines(content), delimiter=mark) if row))]


def _lines(text: str) -> Iterator[str]:
    return (found.group() for found in re.finditer(r"[^\n]*\n|[^\n]+\Z", text))


def doubled_quotes(text: str, delimiter: str) -> str:
    """The text with backslash quotes doubled, where that and only that makes all rows equally long."""
    if '\\"' not in text:
        return text

    def lengths(of: str) -> Counter[int]:
        return Counter(len(row) for row in csv.reader(_lines(of), delimiter=delimiter) if row)

    csv.field_size_limit(2**31 - 1)
    if len(lengths(text)) == 1:
        return text
    other = re.sub(r'\\(["\\])', lambda m: {'"': '""'}.get(m.group(1), m.group(1)), text)
    return other if len(lengths(other)) == 1 else text


def _object(line: str) -> Any:
    try:
        return json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None


def record_lists(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, list[Any]]]:
    """(dotted path, records) of every list of objects, object of objects, or object of equally long lists."""
    name = ".".join(path)
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        yield name, value
    if not isinstance(value, dict):
        return
    inner = list(value.values())
    if len(inner) >= 2 and all(isinstance(part, list) for part in inner):
        flat = not any(isinstance(item, dict | list) for part in inner for item in part)
        if flat:
            if len({len(part) for part in inner}) == 1:
                names = list(value)
                yield name, [dict(zip(names, items, strict=True)) for items in zip(*inner, strict=True)]
            return
    if len(inner) >= 2 and all(isinstance(part, dict) for part in inner):
        yield name, [{"key": key, **part} for key, part in value.items()]
        return
    for key, part in value.items():
        yield from record_lists(part, (*path, key))


def _records(name: str, records: list[Any]) -> Sheet:
    columns = list(dict.fromkeys(itertools.chain.from_iterable(leaves(r) for r in records if isinstance(r, dict))))

    def rows() -> Iterator[list[str]]:
        yield columns
        for record in records:
            flat = leaves(record) if isinstance(record, dict) else {}
            yield [flat.get(column, "") for column in columns] if flat else []

    return Sheet(name, rows, named=True)


def leaves(record: dict[str, Any]) -> dict[str, str]:
    """Dotted key to the text of its value."""
    found: dict[str, str] = {}
    stack: list[tuple[str, Any]] = [(key, value) for key, value in reversed(record.items())]
    while stack:
        key, value = stack.pop()
        if isinstance(value, dict):
            stack.extend((f"{key}.{inner}", part) for inner, part in reversed(value.items()))
        else:
            found[key] = _value(value)
    return found


def _value(value: Any) -> str:
    if value is None or value is True or value is False:
        return {None: "", True: "true", False: "false"}[value]
    if not isinstance(value, list):
        return str(value)
    if any(isinstance(item, list | dict) for item in value):
        text = json.dumps(value, ensure_ascii=False, sort_keys=True)
        return json.dumps(value, sort_keys=True) if re.search("[\ud800-\udfff]", text) else text
    return "\n".join(_value(item) for item in value)


def _parquet(path: Path) -> Sheet:
    import polars as pl

    def rows() -> Iterator[list[str]]:
        frame = pl.scan_parquet(path)
        first = True
        for start in itertools.count(0, 50_000):
            part = frame.slice(start, 50_000).collect()
            while any(isinstance(t, pl.Struct) for t in part.dtypes):
                nested = [n for n, t in part.schema.items() if isinstance(t, pl.Struct)]
                part = part.with_columns(pl.col(n).name.prefix_fields(f"{n}.") for n in nested).unnest(nested)
            if first:
                yield part.columns
                first = False
            if part.is_empty():
                return
            yield from ([number_text(cell) for cell in row] for row in part.iter_rows())

    return Sheet("", rows, named=True)


def number_text(value: Any) -> str:
    """A typed value as text: whole numbers without a fraction, times in ISO form, nothing for null and NaN."""
    if value is None or (isinstance(value, float) and value not in (float("inf"), float("-inf")) and value != value):
        return ""
    if value is True or value is False:
        return str(value).upper()
    if isinstance(value, float):
        if value in (float("inf"), float("-inf")):
            return ""
        return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else str(value)
    if isinstance(value, dt.datetime):
        day = value.tzinfo is None and value.time() == dt.time.min
        return value.strftime("%Y-%m-%d") if day else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, list | tuple):
        plain = not any(isinstance(item, list | dict) for item in value)
        return "\n".join(map(number_text, value)) if plain else _value([_texts(item) for item in value])
    return str(value)


def _texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: part for name, inner in value.items() for key, part in _text_leaves(name, inner)}
    return number_text(value)


def _text_leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _text_leaves(f"{name}.{key}", part)
    else:
        yield name, "true" if value is True else "false" if value is False else _value(value)


def _xls(path: Path) -> list[Sheet]:
    import xlrd

    from tasks.verify.raw_xlsx import padded, serial_text

    book = xlrd.open_workbook(str(path), formatting_info=True)

    def text(cell: Any) -> str:
        code = book.format_map[book.xf_list[cell.xf_index].format_key].format_str
        if cell.ctype == xlrd.XL_CELL_DATE:
            return serial_text(cell.value, bool(book.datemode), code)
        if cell.ctype == xlrd.XL_CELL_BOOLEAN:
            return "TRUE" if cell.value else "FALSE"
        if cell.ctype == xlrd.XL_CELL_ERROR:
            return str(xlrd.error_text_from_code[cell.value])
        if cell.ctype == xlrd.XL_CELL_NUMBER:
            shown = number_text(float(cell.value))
            return padded(shown, code) or shown
        return str(cell.value)

    found = []
    for sheet in book.sheets():
        rows = [[text(cell) for cell in sheet.row(i)] for i in range(sheet.nrows)]
        merged = tuple((a, c, b - 1, d - 1) for a, b, c, d in sheet.merged_cells)
        found.append(Sheet(sheet.name, partial(iter, rows), merged))
    return found


def _pdf(path: Path) -> list[Sheet]:
    """Tables in reading order; the first table of a page goes on with the one before it if both have equal columns."""
    import pdfplumber

    found: list[tuple[str, list[float], list[list[str]]]] = []
    with pdfplumber.open(path) as document:
        for number, page in enumerate(document.pages, start=1):
            for count, table in enumerate(sorted(page.find_tables(), key=lambda t: t.bbox[1]), start=1):
                rows = [[_one_line(cell or "") for cell in row] for row in table.extract()]
                if len(rows[0]) < 2:
                    continue
                lefts = sorted({round(cell[0], 1) for cell in table.cells})
                before = found[-1] if found and count == 1 else None
                if before and len(before[1]) == len(lefts) and len(before[2][0]) == len(rows[0]):
                    same = max(abs(a - b) for a, b in zip(before[1], lefts, strict=True)) <= 3.0
                    if same:
                        before[2].extend(rows)
                        continue
                found.append((f"page {number} table {count}", lefts, rows))
    return [Sheet(name, partial(iter, rows)) for name, _, rows in found]


def _one_line(text: str) -> str:
    """Lines of a cell joined, with a space except beside Chinese."""
    text = re.sub(r"[^\S\n]*\n\s*", "\n", text.strip())
    wide = "[\u3000-\u303f\u3400-\u9fff\uff00-\uffef]"
    return re.sub(rf"(?<={wide})\n|\n(?={wide})", "", text).replace("\n", " ")
