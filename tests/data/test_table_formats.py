"""Tables of every format give the same rows: text first, nothing renamed, nothing rounded, nothing swallowed."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xlwt
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Table as PdfTable

from specs.errors import SourceError
from tasks.data.grid import FlawedRow
from tasks.data.grids import read_grids
from tasks.data.records import SourceFile
from tasks.data.tables import Table, find_tables
from tasks.data.workbooks import zero_padded

HEADER = ["Code", "Meaning", "Remedy", "Hours"]
ROWS = [
    ["0012", "G07.1 refused", "check NO172.3", "2.50"],
    ["NA", "door, open", 'close the 5" door', "0"],
    ["0013", "", "none known", ""],
]
COLUMNS = {"fault_type": "Code", "meaning": "Meaning", "remedy": "Remedy", "hours": "Hours"}


def source(path: Path) -> SourceFile:
    return SourceFile(path.name, path)


def tables(path: Path, columns: dict[str, str] | None = None, sheet: str | None = None) -> list[Table]:
    return [t for t, _ in find_tables(read_grids(source(path)), columns or COLUMNS, path.name, sheet)]


def values(table: Table) -> list[list[str]]:
    return [[table.value(row, field) for field in table.columns] for row in table.rows]


def write(path: Path) -> Path:
    """The rows in the format that the name asks for."""
    name = path.name.removesuffix(".gz")
    records = [dict(zip(HEADER, row, strict=True)) for row in ROWS]
    quoted = [['"' + cell.replace('"', '""') + '"' for cell in row] for row in ROWS]
    if name.endswith((".csv", ".tsv")):
        delimiter = "\t" if name.endswith(".tsv") else ","
        data = "\n".join(delimiter.join(row) for row in [HEADER, *quoted]).encode()
    elif name == "array.json":
        data = json.dumps(records).encode()
    elif name == "columns.json":
        data = json.dumps({c: [r[c] for r in records] for c in HEADER}).encode()
    elif name == "wrapped.json":
        data = json.dumps({"version": 3, "alarms": records}).encode()
    elif name.endswith(".jsonl"):
        data = b"\xef\xbb\xbf" + "\n".join(json.dumps(r, ensure_ascii=False) for r in records).encode()
    else:
        return write_binary(path)
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path


def write_binary(path: Path) -> Path:
    if path.suffix == ".xlsx":
        book = openpyxl.Workbook()
        for row in [HEADER, *ROWS]:
            book.active.append(row)
        book.save(path)
    elif path.suffix == ".xls":
        old = xlwt.Workbook()
        sheet = old.add_sheet("A")
        for i, row in enumerate([HEADER, *ROWS]):
            for j, cell in enumerate(row):
                sheet.write(i, j, cell)
        old.save(str(path))
    elif path.suffix == ".parquet":
        pq.write_table(pa.table({c: [r[i] for r in ROWS] for i, c in enumerate(HEADER)}), path)
    else:
        write_pdf(path, [HEADER, *ROWS])
    return path


def write_pdf(path: Path, *pages: list[list[str]]) -> None:
    canvas = Canvas(str(path), pagesize=A4)
    for rows in pages:
        canvas.drawString(60, 800, "Alarm list of the controller")
        if rows:
            table = PdfTable(rows, colWidths=[60, 150, 150, 60])
            table.setStyle([("GRID", (0, 0), (-1, -1), 1, "black")])
            table.wrapOn(canvas, 400, 200)
            table.drawOn(canvas, 60, 600)
        canvas.showPage()
    canvas.save()


FORMATS = [
    "a.csv",
    "a.csv.gz",
    "a.tsv",
    "a.tsv.gz",
    "array.json",
    "array.json.gz",
    "columns.json",
    "wrapped.json",
    "a.jsonl",
    "a.jsonl.gz",
    "a.xlsx",
    "a.xls",
    "a.parquet",
    "a.pdf",
]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_cells_as_text(tmp_path: Path, name: str):
    [table] = tables(write(tmp_path / name))
    assert values(table) == ROWS
    assert values(table) == ROWS, "rows can be read again"


def test_json_keeps_numbers_as_written_and_nested_keys_as_dotted_columns(tmp_path: Path):
    text = '[{"id": 0012.50, "zh": {"text": "轴错误", "steps": ["查", "换"]}, "level": null, "ok": true}]'
    (tmp_path / "a.json").write_text(text.replace("0012", "12"))
    [table] = tables(tmp_path / "a.json", {"a": "id", "b": "zh.text", "c": "zh.steps", "d": "level", "e": "ok"})
    assert values(table) == [["12.50", "轴错误", "查\n换", "", "true"]]


def test_an_object_of_objects_is_a_table_with_its_keys_and_arrays_beside_each_other_are_sheets(tmp_path: Path):
    (tmp_path / "a.json").write_text('{"16": {"text": "x"}, "17": {"text": "y"}}')
    [table] = tables(tmp_path / "a.json", {"code": "key", "text": "text"})
    assert values(table) == [["16", "x"], ["17", "y"]]
    (tmp_path / "b.json").write_text('{"servo": [{"id": 1}], "io": {"list": [{"id": 2}]}}')
    found = tables(tmp_path / "b.json", {"id": "id"})
    assert [(t.location(1), values(t)) for t in found] == [("servo#1", [["1"]]), ("io.list#1", [["2"]])]
    assert [t.sheet for t in tables(tmp_path / "b.json", {"id": "id"}, "servo")] == ["servo"]


def test_json_lines_that_are_no_object_or_hold_a_key_twice_are_flawed_rows(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text(
        '{"a": "1"}\n\n[1, 2]\nbroken {\n{"a": "x", "a": "y"}\n{"a": "\\ud800"}\n{"a": "2"}\n'
    )
    [table] = tables(tmp_path / "a.jsonl", {"a": "a"})
    reasons = [row.reason if isinstance(row, FlawedRow) else "" for row in table.rows]
    assert reasons == ["", "not_a_json_object", "not_a_json_object", "key_stands_twice", "damaged_text", ""]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_objects_within_objects_are_read_however_deep_they_are(tmp_path: Path, name: str):
    deep = '{"a": "x", "b": ' + '{"c": ' * 700 + '"y"' + "}" * 701
    (tmp_path / name).write_text(f"[{deep}]" if name == "a.json" else deep)
    [table] = tables(tmp_path / name, {"a": "a"})
    assert values(table) == [["x"]]


@pytest.mark.parametrize("text", ["[1, 2]", "{}", '{"a": 1}', "[", "null", '"x"'])
def test_json_without_a_table_is_a_source_error(tmp_path: Path, text: str):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(SourceError) as caught:
        read_grids(source(tmp_path / "a.json"))
    assert caught.value.hint


def test_parquet_types_become_what_a_person_would_write_and_nan_is_empty(tmp_path: Path):
    when = dt.datetime(2024, 5, 6, 7, 8, 9)
    columns = {
        "code": pa.array([12.0, None, float("nan")]),
        "part": pa.array(["0012", "NA", None]),
        "at": pa.array([when, when.replace(hour=0, minute=0, second=0), None], pa.timestamp("us")),
        "deep": pa.array([{"x": 1, "y": "a"}, {"x": None, "y": "b"}, None]),
        "tags": pa.array([["a", "b"], [], None]),
        "day": pa.array([dt.date(2024, 5, 6)] * 3),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    [grid] = read_grids(source(tmp_path / "a.parquet"))
    assert grid.noticed == {"nan_values": 1}
    assert list(grid.cells) == [
        ["code", "part", "at", "deep.x", "deep.y", "tags", "day"],
        ["12", "0012", "2024-05-06 07:08:09", "1", "a", "a\nb", "2024-05-06"],
        ["", "NA", "2024-05-06", "", "b", "", "2024-05-06"],
        ["", "", "", "", "", "", "2024-05-06"],
    ]


def test_a_parquet_file_that_is_damaged_or_holds_bytes_is_a_source_error(tmp_path: Path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing PAR1")
    pq.write_table(pa.table({"a": [b"\xff\xfe"]}), tmp_path / "b.parquet")
    for name in ("a.parquet", "b.parquet"):
        with pytest.raises(SourceError, match=name):
            read_grids(source(tmp_path / name))


def test_zeros_that_only_the_number_format_shows_are_kept_and_dates_follow_the_cell_style(tmp_path: Path):
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["Code", "Part", "Date", "Plain"])
    for row, code in enumerate((42, 123456), start=2):
        for column, (value, shown) in enumerate(
            [(code, "00000"), (code, '"P-"000\\-000'), (45418, "yyyy-mm-dd"), (45418, "General")], start=1
        ):
            sheet.cell(row, column, value).number_format = shown
    book.save(tmp_path / "a.xlsx")
    columns = {n: n for n in ("Code", "Part", "Date", "Plain")}
    [table] = tables(tmp_path / "a.xlsx", columns)
    assert values(table) == [
        ["00042", "P-000-042", "2024-05-06", "45418"],
        ["123456", "P-123-456", "2024-05-06", "45418"],
    ]


@pytest.mark.parametrize("code", ["0", "General", "0.00", "#,##0", "yyyy-mm-dd", "0%", "00.0", "@", "0E+00"])
def test_other_number_formats_leave_the_stored_value(code: str):
    assert zero_padded("42", code) == ""


def test_formulas_are_counted_and_refused_where_their_value_is_not_stored(tmp_path: Path):
    book = openpyxl.Workbook()
    book.active.append(["Code", "Sum"])
    book.active.append(["A1", "=1+1"])
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(SourceError, match="B2"):
        read_grids(source(tmp_path / "a.xlsx"))


def test_cells_merged_over_rows_hold_for_each_row_and_are_counted(tmp_path: Path):
    book = openpyxl.Workbook()
    for row in [["List"], HEADER, *[[r[0] if i == 0 else "", *r[1:]] for i, r in enumerate(ROWS)]]:
        book.active.append(row)
    book.active.merge_cells("A1:D1")
    book.active.merge_cells("A3:A5")
    book.save(tmp_path / "a.xlsx")
    [table] = tables(tmp_path / "a.xlsx")
    assert [row[0] for row in values(table)] == ["0012"] * 3
    assert table.filled == 2


def test_a_pdf_table_goes_on_over_pages_and_pages_without_text_are_named(tmp_path: Path):
    write_pdf(tmp_path / "a.pdf", [HEADER, ROWS[0]], [HEADER, ROWS[1]], [["0013", "x", "y", "z"], ROWS[0]])
    [table] = tables(tmp_path / "a.pdf")
    assert [row[0] for row in table.rows] == ["0012", "Code", "NA", "0013", "0012"]
    assert table.location(5) == "page 1 table 1#5"
    canvas = Canvas(str(tmp_path / "b.pdf"), pagesize=A4)
    canvas.rect(10, 10, 50, 50, fill=1)
    canvas.save()
    with pytest.raises(SourceError, match="pages without text: 1"):
        read_grids(source(tmp_path / "b.pdf"))


def csv_of(path: Path, text: str) -> dict[str, Any]:
    path.write_text(text)
    [grid] = read_grids(source(path))
    return {"cells": list(grid.cells), "dialect": grid.dialect, "lost": grid.characters_in - grid.characters_out}


def test_quotes_escaped_by_backslashes_are_read_where_doubled_quotes_do_not_fit(tmp_path: Path):
    lines = ["P,R"] + ['"a \\"loud\\", hot pump in C:\\\\dir","new ""seal"" 5\\""'] * 3
    found = csv_of(tmp_path / "a.csv", "\n".join(lines))
    assert found["cells"][1] == ['a "loud", hot pump in C:\\dir', 'new "seal" 5"']
    assert (found["dialect"], found["lost"]) == ("backslash quotes", 0)
    plain = csv_of(tmp_path / "b.csv", 'P,R\n"in C:\\temp, hot",x\n')
    assert plain == {"cells": [["P", "R"], ["in C:\\temp, hot", "x"]], "dialect": "", "lost": 0}
