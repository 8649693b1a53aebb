"""The verifier's own readers see what the stage's readers see, format by format, and share no code with them."""

from __future__ import annotations

import ast
import datetime as dt
import gzip
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xlwt

from tasks.data.documents import read_document
from tasks.data.encoding import decode
from tasks.data.grid import Grid
from tasks.data.grids import read_grids
from tasks.data.records import SourceFile
from tasks.data.tables import Table, find_tables
from tasks.verify import data_raw, raw_documents, raw_sheets, raw_xlsx
from tests.data.test_documents import PAGE, full_docx, scanned_pdf
from tests.data.test_table_formats import COLUMNS, FORMATS, HEADER, ROWS, write, write_pdf

SOURCE = {"kind": "fault_codes", "columns": COLUMNS}


def test_the_readers_of_the_verifier_import_nothing_of_the_stage():
    for module in (data_raw, raw_documents, raw_sheets, raw_xlsx):
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        names = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        names |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        assert not any(name.startswith("tasks.data") for name in names), module.__name__


def both(path: Path, columns: dict[str, str] = COLUMNS, **more: Any) -> list[tuple[Table, Grid]]:
    """The tables by the stage, after asserting that the verifier reads the same rows and characters."""
    found = find_tables(read_grids(SourceFile(path.name, path)), columns, path.name, None)
    source = {**SOURCE, "columns": columns, **more}
    mine = dict(data_raw.iter_table_rows(path.name, path, source, found[0][1].encoding))
    expected = {}
    for table, grid in found:
        for number, row in enumerate(table.rows, start=1):
            expected[path.name, table.location(number)] = {f: table.value(row, f) for f in table.columns}
        characters = data_raw.table_characters(path.name, path, grid.encoding, grid.sheet)
        assert characters == grid.characters_in == grid.characters_out
        assert data_raw.encoding_right(path.name, path, grid.encoding)
    assert {k: {f: v.strip() for f, v in row.items()} for k, row in mine.items()} == expected
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_stage_and_verifier_read_the_same_rows_from_every_format(tmp_path: Path, name: str):
    [(table, _)] = both(write(tmp_path / name))
    assert len(table.rows) == len(ROWS)


def test_both_read_typed_cells_of_workbooks_alike(tmp_path: Path):
    shown = [
        (45418.5, "yyyy-mm-dd hh:mm"),
        (45418, 'yyyy"年"m"月"d"日"'),
        (45418.123456, "yyyy-mm-dd hh:mm:ss"),
        (0.25, "hh:mm"),
        (1.5, "[h]:mm:ss"),
        (42, "00000"),
        (7, '"P-"000\\-000'),
        (0.125, "0.00"),
        (-3.0, "General"),
        (1e20, "General"),
        (True, "General"),
        ("#N/A", "General"),
    ]
    book = openpyxl.Workbook()
    book.active.append(["Value", "Note"])
    for row, (value, code) in enumerate(shown, start=2):
        book.active.cell(row, 1, value).number_format = code
        book.active.cell(row, 2, f"row {row}")
    book.save(tmp_path / "a.xlsx")
    [(table, grid)] = both(tmp_path / "a.xlsx", {"value": "Value", "note": "Note"})
    assert [table.value(row, "value") for row in table.rows][5:8] == ["00042", "P-000-007", "0.125"]
    assert table.value(list(table.rows)[-1], "value") == "#N/A"
    assert grid.noticed == {"error_cells": 1, "zeros_of_format": 2}
    old = xlwt.Workbook()
    sheet = old.add_sheet("A")
    for column, name in enumerate(["Value", "Note"]):
        sheet.write(0, column, name)
    for row, (value, code) in enumerate(shown[:8], start=1):
        sheet.write(row, 0, value, xlwt.easyxf(num_format_str=code))
        sheet.write(row, 1, f"row {row}")
    old.save(str(tmp_path / "a.xls"))
    [(table, _)] = both(tmp_path / "a.xls", {"value": "Value", "note": "Note"})
    assert [table.value(row, "value") for row in table.rows][5:8] == ["00042", "P-000-007", "0.125"]


def test_both_fill_merged_cells_and_find_the_header_band(tmp_path: Path):
    book = openpyxl.Workbook()
    rows = [
        ["List of alarms"],
        [],
        HEADER,
        ["0012", "a b", "c d", "1"],
        ["", "e f", "g h", "2"],
        ["", "i j", "k l", ""],
    ]
    for row in rows:
        book.active.append(row)
    book.active.merge_cells("A1:D1")
    book.active.merge_cells("A4:A6")
    book.save(tmp_path / "a.xlsx")
    [(table, _)] = both(tmp_path / "a.xlsx")
    assert {table.value(row, "fault_type") for row in table.rows} == {"0012"}


def test_both_read_typed_and_nested_parquet_alike(tmp_path: Path):
    columns = {
        "Code": pa.array([12.0, None, 0.5, float("nan")]),
        "Meaning": pa.array(["0012", "NA", None, "x"]),
        "Remedy": pa.array([dt.datetime(2024, 5, 6, 7), dt.datetime(2024, 5, 6), None, None], pa.timestamp("us")),
        "Hours": pa.array([["a", "b"], [], None, ["c"]]),
        "deep": pa.array([{"x": 1, "y": {"z": "a"}}, None, {"x": None, "y": {"z": "b"}}, None]),
        "flag": pa.array([True, False, None, True]),
        "day": pa.array([dt.date(2024, 5, 6)] * 4),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=2)
    both(tmp_path / "a.parquet", {**COLUMNS, "z": "deep.y.z"})


def test_both_read_nested_json_alike(tmp_path: Path):
    text = """{"servo": [{"id": 1.50, "zh": {"t": "轴"}, "l": ["a", null, true], "o": [{"b": 1}]}, 7, {"id": 2}],
"io": {"x": {"id": 3}, "y": {"id": 4}}, "list": {"id": [5, 6], "n": ["p", "q"]}}"""
    (tmp_path / "a.json").write_text(text)
    found = both(tmp_path / "a.json", {"id": "id"})
    assert [table.sheet for table, _ in found] == ["servo", "io", "list"]
    (tmp_path / "a.jsonl").write_text('{"id": 1, "n": {"t": "x"}}\nbroken\n\n{"id": "2", "m": [1, 2]}\n[1]\n')
    both(tmp_path / "a.jsonl", {"id": "id"})


def test_both_read_backslash_quotes_and_tables_over_pages_alike(tmp_path: Path):
    lines = [",".join(HEADER)] + ['0012,"a \\"b\\", c","d\\\\e",1'] * 3
    (tmp_path / "a.csv").write_text("\n".join(lines))
    [(table, _)] = both(tmp_path / "a.csv")
    assert table.value(next(iter(table.rows)), "meaning") == 'a "b", c'
    write_pdf(tmp_path / "a.pdf", [HEADER, ROWS[0]], [HEADER, ROWS[1]], [["0013", "x", "y", "z"], ROWS[0]])
    [(table, _)] = both(tmp_path / "a.pdf")
    assert len(table.rows) == 5


@pytest.mark.parametrize("encoding", ["gb18030", "big5", "utf-16-le", "utf-16", "utf-8-sig"])
def test_the_encoding_that_the_stage_found_is_confirmed_and_another_is_not(tmp_path: Path, encoding: str):
    text = (
        "代碼,現象\n0012,主軸有異響，檢查後更換軸承\n"
        if encoding == "big5"
        else "代码,现象\n0012,主轴有异响，检查后更换轴承\n"
    )
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    found = decode((tmp_path / "a.csv").read_bytes(), "a.csv").encoding
    assert found == encoding
    assert data_raw.encoding_right("a.csv", tmp_path / "a.csv", found)
    others = {"gb18030", "big5", "utf-8", "utf-16-be"} - {found, found.removesuffix("-sig")}
    assert not any(data_raw.encoding_right("a.csv", tmp_path / "a.csv", other) for other in others)


def test_both_see_the_same_characters_in_documents(tmp_path: Path):
    full_docx(tmp_path / "a.docx")
    (tmp_path / "a.html.gz").write_bytes(gzip.compress(PAGE.encode()))
    (tmp_path / "b.htm").write_bytes(PAGE.replace("<title>", "<meta charset=gb2312><title>").encode("gb18030"))
    scanned_pdf(tmp_path / "a.pdf")
    for path in sorted(tmp_path.iterdir()):
        document = read_document(SourceFile(path.name, path))
        held = raw_documents.visible_characters("".join(block.text for block in document.blocks))
        readings = data_raw.document_characters(path.name, path, document.encoding)
        assert raw_documents.folded(held) in [raw_documents.folded(reading) for reading in readings], path.name
        assert data_raw.encoding_right(path.name, path, document.encoding), path.name


def test_tables_are_read_as_often_for_many_files_as_for_one(data_run, monkeypatch):
    from tasks.verify.data_rows import RawFiles, characters_unexplained
    from tasks.verify.data_sensors import sensor_faults
    from tasks.verify.findings import Findings
    from tasks.verify.parquet_rows import ParquetRows

    run, passes, batches = data_run("en"), [], ParquetRows.batches

    def counted(self, columns=None):
        passes.append(self.path.name)
        return batches(self, columns)

    monkeypatch.setattr(ParquetRows, "batches", counted)
    files = RawFiles(run.out / "artifacts", run.context.model_dump(mode="json"))
    assert len(list(files.files("manuals", "notes", "sensor_logs"))) == 3  # a pass for each would be five
    assert characters_unexplained(files) + sensor_faults(files, Findings()) == 0
    assert sorted(passes) == ["row_ledger.parquet", "row_ledger.parquet", "samples.parquet"]
