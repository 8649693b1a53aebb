"""Readers: encodings are found or asked, tables are text under the right header, documents lose nothing."""

from __future__ import annotations

from pathlib import Path

import docx
import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.errors import SourceError
from tasks.data.blocks import Block
from tasks.data.colloquial import divide_action, split_steps, structure
from tasks.data.documents import read_document
from tasks.data.encoding import decode, visible
from tasks.data.grids import read_grids
from tasks.data.lengths import bucket_edges
from tasks.data.paragraphs import cut, sentences
from tasks.data.records import SourceFile
from tasks.data.tables import find_tables
from tasks.data.windows import Reading, describe, windows_of

TEXT = "设备型号,故障现象\nVMC-850,主轴有异响，检查后更换轴承。\n"
TRADITIONAL = "設備型號,故障現象\nVMC-850,主軸有異響，檢查後更換軸承，重新啟動正常。\n"


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (TEXT.encode("utf-8"), "utf-8"),
        (TEXT.encode("utf-8-sig"), "utf-8-sig"),
        (TEXT.encode("utf-16"), "utf-16"),
        (TEXT.encode("utf-16-le"), "utf-16-le"),
        (TEXT.encode("utf-16-be"), "utf-16-be"),
        (TEXT.encode("gb18030"), "gb18030"),
        (TRADITIONAL.encode("big5"), "big5"),
        (TEXT.replace("\n", "\r\n").encode("gb18030"), "gb18030"),
    ],
)
def test_the_encoding_is_found(data, encoding):
    decoded = decode(data, "x.csv")
    assert decoded.encoding == encoding
    assert decoded.text in (TEXT, TRADITIONAL)


@pytest.mark.parametrize("data", ["spindle at 85°C".encode("latin-1"), "龘靐齉".encode("gb18030"), b"\xff\x00\x80"])
def test_what_does_not_read_well_is_asked_never_guessed(data):
    with pytest.raises(SourceError) as caught:
        decode(data, "x.csv")
    assert caught.value.hint


def workbook(path: Path, rows: list[list], merges: list[str]) -> SourceFile:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for area in merges:
        book.active.merge_cells(area)
    book.save(path)
    return SourceFile(path.name, path)


def test_a_header_band_under_title_rows_is_found_and_zeros_are_kept(tmp_path: Path):
    rows = [
        ["Work orders of the hall"],
        [],
        ["Code", "Work", None, "Hours"],
        [None, "Checks", "Repair", None],
        ["0012", "looked", "fixed", 2.0],
        [None, None, None, None],
        ["0452", "measured", "replaced", 0.5],
    ]
    file = workbook(tmp_path / "a.xlsx", rows, ["A1:D1", "A3:A4", "B3:C3", "D3:D4"])
    columns = {"fault_type": "Code", "steps": "Work / Checks", "repair": "repair", "date": "Hours"}
    [(table, _)] = find_tables(read_grids(file), columns, "a.xlsx", None)
    assert len(table.rows) == 3
    assert [table.value(next(iter(table.rows)), f) for f in columns] == ["0012", "looked", "fixed", "2"]
    assert table.location(3) == "Sheet#3"


def test_every_sheet_with_the_columns_is_read_and_others_are_not(tmp_path: Path):
    book = openpyxl.Workbook()
    for title, header in (("A", "Code"), ("B", "Code"), ("C", "Other")):
        sheet = book.create_sheet(title)
        sheet.append([header, "Meaning"])
        sheet.append(["1", "x"])
    book.save(tmp_path / "a.xlsx")
    grids = read_grids(SourceFile("a.xlsx", tmp_path / "a.xlsx"))
    columns = {"fault_type": "Code", "meaning": "Meaning"}
    assert [t.sheet for t, _ in find_tables(grids, columns, "a.xlsx", None)] == ["A", "B"]
    assert [t.sheet for t, _ in find_tables(grids, columns, "a.xlsx", "B")] == ["B"]
    with pytest.raises(SourceError, match="no sheet 'Z'"):
        find_tables(grids, columns, "a.xlsx", "Z")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path: Path, delimiter):
    lines = [["Code", "Meaning"], ["1", '"a, b; c"'], ["2", "d"]]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(delimiter.join(line) for line in lines))
    [(table, _)] = find_tables(read_grids(SourceFile("a.csv", path)), {"m": "Meaning"}, "a.csv", None)
    assert [table.value(row, "m") for row in table.rows] == ["a, b; c", "d"]


def test_a_docx_keeps_every_character_in_order(tmp_path: Path):
    document = docx.Document()
    document.add_heading("1 Spindle", 1)
    document.add_paragraph("Check the belt. Replace it when it is worn.")
    document.add_paragraph("Use gloves", style="List Bullet")
    document.add_paragraph("Use tool 7", style="List Bullet")
    table = document.add_table(2, 2)
    for i, text in enumerate(["Code", "Meaning", "G07.1", "refused"]):
        table.cell(i // 2, i % 2).text = text
    document.save(tmp_path / "a.docx")
    found = read_document(SourceFile("a.docx", tmp_path / "a.docx"))
    assert [b.kind for b in found.blocks] == ["heading", "text", "list", "table"]
    assert found.blocks[2].text == "Use gloves\nUse tool 7"
    assert found.blocks[3].text == "Code\tMeaning\nG07.1\trefused"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(alphabet="ab。. 轴1！", min_size=1, max_size=60), min_size=1, max_size=12), st.integers(4, 60))
def test_cutting_paragraphs_loses_no_character(texts, target):
    blocks = [Block("heading" if i % 4 == 0 else "list" if i % 5 == 0 else "text", t) for i, t in enumerate(texts)]
    paragraphs = cut(blocks, target, len)
    assert sum(visible(p.text) for p in paragraphs) == sum(visible(t) for t in texts)


def test_running_prose_is_cut_to_similar_lengths_at_sentence_ends():
    prose = " ".join(f"The pump of unit {i} needs {i} litres of oil, see No. {i} and Fig. {i}." for i in range(200))
    paragraphs = cut([Block("text", prose)], 300, len)
    assert all(220 <= len(p.text) <= 380 for p in paragraphs)
    assert all(p.text.endswith(".") and p.text.startswith("The pump") for p in paragraphs)


def test_sentences_end_in_two_languages_but_not_inside_numbers():
    assert sentences("压力为0.5巴。检查G07.1！Open valve. Set 3.5 bar.") == [
        "压力为0.5巴。",
        "检查G07.1！",
        "Open valve.",
        "Set 3.5 bar.",
    ]


def readings(times: list[float]) -> list[Reading]:
    return [Reading(t, (1.0,)) for t in times]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([1.0, 1.0, 1.0, 2.0, 30.0, -5.0]), min_size=3, max_size=80), st.integers(5, 20))
def test_windows_hold_every_reading_once_and_span_no_gap(steps, window_s):
    times = [1e9]
    for step in steps:
        times.append(times[-1] + step)
    windows = windows_of(readings(times), window_s)
    assert [r.time_s for w in windows for r in w.readings] == times
    assert [w.number for w in windows] == list(range(1, len(windows) + 1))
    assert all(0 <= w.end_s - w.start_s < window_s for w in windows)


def test_a_window_is_described_by_its_numbers():
    found = describe([0.0, 1.0, 2.0, 3.0], [1.0, 3.0, 5.0, float("nan")])
    assert found == pytest.approx(
        {"mean": 3, "std": (8 / 3) ** 0.5, "minimum": 1, "maximum": 5, "slope_per_s": 2, "rms": (35 / 3) ** 0.5}
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(1, 4))
def test_bucket_edges_are_the_best_there_are(lengths, buckets):
    from itertools import combinations

    values = sorted(set(lengths))

    def padding(edges) -> int:
        return sum(next(e for e in edges if n <= e) - n for n in lengths)

    others = combinations(values[:-1], min(buckets, len(values)) - 1)
    assert padding(bucket_edges(lengths, buckets)) == min(padding((*chosen, values[-1])) for chosen in others)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("1) open cover\n2) measure 1.5 mm gap\n3) close", ["open cover", "measure 1.5 mm gap", "close"]),
        ("1、看油位；2、换滤芯", ["看油位", "换滤芯"]),
        ("①停机 ②断电", ["停机", "断电"]),
        ("先看油压，再查阀门，然后更换滤芯，最后试机", ["看油压", "查阀门", "更换滤芯", "试机"]),
        ("first checked fuse, then swapped relay and finally ran it", ["checked fuse", "swapped relay", "ran it"]),
        ("looked at 3. axis", ["looked at 3. axis"]),
    ],
)
def test_steps_are_found_in_colloquial_text(text, steps):
    assert list(split_steps(text)) == steps


@pytest.mark.parametrize(
    ("text", "phenomenon", "repair"),
    [
        (
            "Spindle hums at speed. Checked belt, found it worn. Replaced belt.",
            "Spindle hums at speed.",
            "Replaced belt.",
        ),
        ("主轴异响。检查皮带，发现磨损。更换皮带。", "主轴异响。", "更换皮带。"),
        ("Problem: no coolant. Fix: cleaned the filter", "no coolant.", "cleaned the filter"),
        ("现象：不出水。处理：清洗滤网", "不出水。", "清洗滤网"),
        ("Remember to order gloves.", "Remember to order gloves.", ""),
    ],
)
def test_notes_are_told_apart_into_phenomenon_and_repair(text, phenomenon, repair):
    parts = structure(text)
    assert (parts.phenomenon, parts.repair) == (phenomenon, repair)


def test_what_was_done_is_divided_into_checks_and_repair():
    parts = divide_action("checked the plug, then wiggled the cable. Then new cable to the encoder, ran it")
    assert parts.steps == ("checked the plug", "wiggled the cable.")
    assert parts.repair == "new cable to the encoder, ran it"
    assert divide_action("replaced the belt").repair == "replaced the belt"
