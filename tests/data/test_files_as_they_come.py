"""Files as they come: quotes that are not closed, names of any form, our own output beside the sources, odd times."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import docx
import openpyxl
import pytest

from specs.errors import SourceError
from specs.parameters import DataParameters
from specs.project import Project
from specs.sources import known_time_zone
from specs.stages import Quiet
from tasks.data.clock import parse_time
from tasks.data.files import encodable, matching_files
from tasks.data.instructions import instruction_records
from tasks.data.probe import probe_sources
from tasks.data.quoting import rows_of
from tasks.data.reading import read_sources
from tasks.data.records import Intake
from tasks.verify import data_raw
from tasks.verify.data_sensors import seconds_of

ORDERS = {"kind": "work_orders", "path": "a.csv", "columns": {"phenomenon": "P", "repair": "R"}}
CODES = {"kind": "fault_codes", "columns": {"fault_type": "C", "meaning": "M", "remedy": "R"}}


def spec_of(*sources: dict[str, Any]) -> Project:
    return Project.model_validate({"project": "p", "base_model": "m", "sources": list(sources)})


def intake_of(folder: Path, *sources: dict[str, Any]) -> Intake:
    return read_sources(folder, spec_of(*sources), DataParameters(), len, Quiet())


def lines(count: int = 30, **changed: str) -> str:
    """A table of three columns; `changed` replaces rows by their number (`r3=...`)."""
    rows = [changed.get(f"r{n}", f"spindle {n} is loud,replaced belt {n},A{n}") for n in range(1, count + 1)]
    return "\n".join(["P,R,C", *rows]) + "\n"


UNBALANCED = {
    "never closed": lines(r10='spindle is loud,"replaced belt,A1'),
    "closed by the opening of another": lines(r10='spindle is loud,"replaced,A1', r20='x is loud,"replaced it",A2'),
    "closed on the next row": lines(r10='spindle is loud,"replaced,A1', r11='x is loud,"replaced it",A2'),
    "closed by an inch mark": lines(r10='spindle is loud,"replaced,A1', r20='a pipe is loud,replaced pipe of 5",A2'),
    "never closed in the last row": lines(r30='spindle is loud,"replaced belt,A1'),
}


@pytest.mark.parametrize("text", UNBALANCED.values(), ids=UNBALANCED.keys())
def test_a_quote_that_swallows_rows_is_an_error_with_its_line_and_the_verifier_sees_it_too(tmp_path: Path, text: str):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(SourceError) as caught:
        intake_of(tmp_path, ORDERS)
    line = 31 if text == UNBALANCED["never closed in the last row"] else 11
    assert caught.value.message.startswith(f"a.csv:{line}")
    assert "double the quote" in caught.value.hint
    _, problems = probe_sources(tmp_path, spec_of(ORDERS))
    assert [p.rule for p in problems] == [caught.value.message]
    if line == 11:
        assert data_raw.swallowed_lines("a.csv", tmp_path / "a.csv", "utf-8") > 0


LEGITIMATE = {
    "a list in a cell": lines(r3='"loud, hot","1, looked\n2, measured\n3, replaced ""the"" belt",A1'),
    "two cells over lines": lines(r3='"loud\nhot","looked\n\nreplaced, tested",A1', r4='"x\ny",z is replaced,A2'),
    "an inch mark": lines(r3='pipe of 5" is loud,replaced the 5" pipe,A1'),
}


@pytest.mark.parametrize("text", LEGITIMATE.values(), ids=LEGITIMATE.keys())
def test_line_ends_inside_well_quoted_cells_stay_in_their_row(tmp_path: Path, text: str):
    (tmp_path / "a.csv").write_text(text)
    assert len(rows_of(text, ",", "a.csv")) == 31
    assert data_raw.swallowed_lines("a.csv", tmp_path / "a.csv", "utf-8") == 0


def test_prose_with_a_comma_in_each_line_is_no_row_of_a_table_of_two_columns(tmp_path: Path):
    text = 'P,R\nx is loud,"looked, cold\nheard, loud\nfelt, hot\nreplaced, done"\n' + "y is loud,replaced it\n" * 9
    (tmp_path / "a.csv").write_text(text)
    assert len(rows_of(text, ",", "a.csv")) == 11
    assert data_raw.swallowed_lines("a.csv", tmp_path / "a.csv", "utf-8") == 0


def test_a_cell_above_128_kib_is_read(tmp_path: Path):
    (tmp_path / "a.csv").write_text(lines(r3=f"spindle is loud,{'replaced belt ' * 20_000},A1"))
    summaries, problems = probe_sources(tmp_path, spec_of(ORDERS))
    assert (summaries[0].rows, problems) == (30, [])


@pytest.mark.parametrize("pattern", ["**/*.md", "."])
def test_own_output_hidden_files_and_lock_files_are_no_sources(tmp_path: Path, pattern: str):
    wanted = ["n.md", "raw/n.md", "raw/runs/n.md"]
    for name in (*wanted, "runs/r1/n.md", "ungated/n.md", ".gatewright/n.md", "raw/.n.md", "raw/~$n.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    assert [p.relative_to(tmp_path).as_posix() for p in matching_files(tmp_path, pattern)] == wanted
    found = data_raw.files_of(tmp_path, {"kind": "notes", "path": pattern})
    assert [name for name, _ in found] == wanted


def test_a_file_name_has_one_form_in_the_artifacts_and_for_the_verifier(tmp_path: Path):
    (tmp_path / "wo\u0308rk.csv").write_text(lines())
    source = {**ORDERS, "path": "."}
    units = {d.unit.source for d in intake_of(tmp_path, source).drafts}
    assert units == {"w\u00f6rk.csv"} == {name for name, _ in data_raw.files_of(tmp_path, source)}


def test_a_file_name_that_is_not_utf8_is_a_source_error(tmp_path: Path):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.csv")).write_text(lines())
    _, problems = probe_sources(tmp_path, spec_of({**ORDERS, "path": "."}))
    assert "not UTF-8" in problems[0].rule
    assert encodable(problems[0].rule)


def test_a_path_that_is_too_long_and_a_file_without_rights_are_source_errors(tmp_path: Path):
    _, problems = probe_sources(tmp_path, spec_of({**ORDERS, "path": "x" * 300 + ".csv"}))
    assert "cannot be used" in problems[0].rule
    (tmp_path / "a.csv").write_text(lines())
    (tmp_path / "a.csv").chmod(0)
    if not os.access(tmp_path / "a.csv", os.R_OK):
        _, problems = probe_sources(tmp_path, spec_of(ORDERS))
        assert "cannot be read" in problems[0].rule


def test_damaged_members_of_gzip_and_docx_are_source_errors(tmp_path: Path):
    (tmp_path / "a.csv.gz").write_bytes(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + b"\xff" * 50)
    document = docx.Document()
    document.add_paragraph("Check the belt. " * 400)
    document.save(str(tmp_path / "n.docx"))
    with zipfile.ZipFile(tmp_path / "n.docx") as archive:
        at = archive.getinfo("word/document.xml").header_offset
    data = bytearray((tmp_path / "n.docx").read_bytes())
    data[at + 60 : at + 120] = b"\xff" * 60
    (tmp_path / "n.docx").write_bytes(bytes(data))
    sources = ({**ORDERS, "path": "a.csv.gz"}, {"kind": "notes", "path": "n.docx"})
    _, problems = probe_sources(tmp_path, spec_of(*sources))
    assert ["gzip" in problems[0].rule, "DOCX" in problems[1].rule] == [True, True]


def test_json_that_python_cannot_hold_is_an_error_or_quarantined(tmp_path: Path):
    deep, huge = "[" * 100_000, "[" + "9" * 5000 + "]"
    for text in (deep, huge):
        with pytest.raises(SourceError, match="is not JSON"):
            list(instruction_records(text, "a.json"))
    surrogate = '{"instruction": "a \\ud800", "output": "b"}'
    (tmp_path / "a.jsonl").write_text("\n".join([deep, huge, surrogate]))
    (tmp_path / "b.json").write_text(f"[{surrogate}]")
    fates = intake_of(tmp_path, *({"kind": "instructions", "path": name} for name in ("a.jsonl", "b.json"))).fates
    assert [f.reason for f in fates] == ["not_a_json_object"] * 2 + ["damaged_text"] * 2
    assert all(encodable(f.unit.original) for f in fates)


TIMES = {
    "1700000000": 1.7e9,
    "1700000000000": 1.7e9,
    "1700000000000000": 1.7e9,
    "1700000000000000000": 1.7e9,
    "20260101120000": 1767268800.0,
    "202601011200": 1767268800.0,
    "20260101": 1767225600.0,
    "2026-01-01 12:00:00": 1767268800.0,
    "20261301120000": None,
    "inf": None,
    "nan": None,
    "1e30": None,
    "0001-01-01 00:00:00": None,
    "9999-12-31T23:59:59": None,
    "²": None,
}


@pytest.mark.parametrize(("text", "seconds"), TIMES.items())
def test_times_are_read_alike_by_stage_and_verifier_or_are_no_times(text: str, seconds: float | None):
    for found in (parse_time(text, ZoneInfo("UTC")), seconds_of(text, ZoneInfo("UTC"))):
        assert found == (None if seconds is None else pytest.approx(seconds))


def test_a_sensor_log_with_a_header_of_two_rows_is_read(tmp_path: Path):
    rows = [f"2026-01-01 12:00:{n:02d},{n},{n * 2}" for n in range(30)]
    (tmp_path / "s.csv").write_text("\n".join(["time,Spindle,", ",temp,load", *rows]))
    source = {"kind": "sensor_logs", "path": "s.csv", "timestamp": "time", "channels": ["temp", "load"]}
    intake = intake_of(tmp_path, source)
    assert {(w["channel"], w["rows"]) for w in intake.windows} == {("temp", 30), ("load", 30)}
    cells = data_raw.sensor_cells("s.csv", tmp_path / "s.csv", source, "utf-8", ["load"])
    assert cells == [[row.split(",")[0], "", row.split(",")[2]] for row in rows]


def test_a_folder_of_the_time_zone_database_is_no_time_zone():
    with pytest.raises(ValueError, match="is not an IANA time zone"):
        known_time_zone("Asia")


def test_a_code_with_another_meaning_in_a_later_file_is_quarantined_in_all_files(tmp_path: Path):
    for name, rows in {
        "1": "0012,overload,reset\n0013,hot,cool it\n",
        "2": "0012,door open,close it\n",
        "3": "0012,overload,reset\n",
    }.items():
        (tmp_path / f"{name}.csv").write_text("C,M,R\n" + rows)
    intake = intake_of(tmp_path, *({**CODES, "path": f"{n}.csv"} for n in (1, 2, 3)))
    assert [d.fault_type for d in intake.drafts] == ["0013"]
    assert [(f.unit.source, f.reason) for f in intake.fates] == [
        (f"{n}.csv", "code_with_two_meanings") for n in (1, 2, 3)
    ]


def test_a_sheet_with_another_header_is_named_with_its_rows(tmp_path: Path):
    book = openpyxl.Workbook()
    for title, header in (("May", "P"), ("June", "Problem")):
        sheet = book.create_sheet(title)
        for row in ([header, "R"], ["spindle is loud", "replaced belt"], ["pump leaks", "replaced seal"]):
            sheet.append(row)
    book.save(tmp_path / "a.xlsx")
    intake = intake_of(tmp_path, {**ORDERS, "path": "a.xlsx"})
    assert "a.xlsx, 'June' (3)" in intake.sheets_not_read
