"""What the examples promise to hold is in their files, found by readers that know nothing of how they were made."""

from __future__ import annotations

import csv
import datetime as dt
import io
import itertools
import json
import re
from pathlib import Path

import openpyxl
import pypdfium2
import pytest
from docx import Document

from examples.catalog import locate
from examples.make.documents import read_blocks
from examples.make.orders import jaccard, shingles
from specs.loading import load_project

LANGUAGES = ("en", "zh")
CONTENT = ("Machine", "Code", "Problem", "Checks", "Repair")
HEADERS = dict(zip(("设备型号", "报警号", "故障现象", "检查过程", "维修措施"), CONTENT, strict=True))
Row = dict[str, str]


def read_orders(language: str) -> dict[str, Row]:
    """Location to row; cells as text."""
    raw = locate("cnc-repair", language) / "raw"
    if language == "zh":
        reader = csv.DictReader(io.StringIO((raw / "work_orders.csv").read_bytes().decode("gb18030"), newline=""))
        rows = [{HEADERS.get(k, k): v for k, v in row.items()} for row in reader]
        return {f"#{i}": row for i, row in enumerate(rows, start=1)}
    sheet = openpyxl.load_workbook(raw / "work_orders.xlsx").active
    upper, lower = ([cell.value for cell in sheet[number]] for number in (2, 3))
    header = [str(low or up) for up, low in zip(upper, lower, strict=True)]
    table = list(sheet.iter_rows(min_row=4, values_only=True))
    rows = [{h: "" if v is None else str(v) for h, v in zip(header, row, strict=True)} for row in table]
    return {f"{sheet.title}#{i}": row for i, row in enumerate(rows, start=1)}


def read_codes(language: str) -> list[list[str]]:
    """The rows of the fault-code table below its header."""
    text = (locate("cnc-repair", language) / "raw" / "fault_codes.csv").read_bytes().decode("utf-8-sig")
    return list(csv.reader(io.StringIO(text, newline="")))[1:]


def normal(row: Row) -> str:
    """Case and white space folded, as for exact duplicates."""
    return "\n".join(" ".join(row[field].casefold().split()) for field in CONTENT)


@pytest.fixture(params=LANGUAGES)
def language(request) -> str:
    return str(request.param)


@pytest.fixture
def orders(language) -> dict[str, Row]:
    return read_orders(language)


@pytest.fixture
def truth(language) -> dict:
    """What was planted in the work orders of this language."""
    planted = json.loads((Path(__file__).parents[2] / "examples" / "make" / "planted.json").read_text("utf-8"))
    return dict(planted[locate("cnc-repair", language).name]["work_orders"])


def test_there_are_the_orders_codes_and_machines_that_were_promised(language, orders, truth):
    assert len(orders) == truth["rows"] >= 420
    assert {row["Machine"] for row in orders.values()} == {"VMC-850", "HMC-500", "TL-25"}
    codes = [row[0] for row in read_codes(language)]
    assert len(set(codes)) == len(codes) >= 64
    assert {"0452", "0012", "G07.1", "ALM-0412"} <= set(codes)
    assert {row["Code"] for row in orders.values()} - {""} <= set(codes)


def test_most_orders_are_of_twenty_to_thirty_fault_types(orders):
    by_type: dict[str, int] = {}
    for row in orders.values():
        by_type[row["Code"]] = by_type.get(row["Code"], 0) + 1
    common = {code: count for code, count in by_type.items() if code and count >= 8}
    assert 20 <= len(common) <= 30
    assert sum(common.values()) > 0.9 * len(orders)


def test_exact_duplicates_are_equal_but_for_case_and_space(orders, truth):
    assert 0.03 <= len(truth["exact_duplicates"]) / len(orders) <= 0.05
    for first, second in truth["exact_duplicates"]:
        assert normal(orders[first]) == normal(orders[second])


def test_near_duplicates_are_near_and_keep_codes_models_and_numbers(language, orders, truth):
    assert 0.04 <= len(truth["near_duplicates"]) / len(orders) <= 0.06
    for first, second in truth["near_duplicates"]:
        texts = [normal(orders[place]) for place in (first, second)]
        assert 0.75 <= jaccard(shingles(texts[0], language), shingles(texts[1], language)) < 1
        assert orders[first]["Code"] == orders[second]["Code"]
        assert orders[first]["Machine"] == orders[second]["Machine"]
        assert re.findall(r"\d+", texts[0]) == re.findall(r"\d+", texts[1])


def test_no_other_orders_are_duplicates_of_each_other(orders, truth):
    planted = {b for kind in ("exact_duplicates", "near_duplicates") for _, b in truth[kind]}
    rest = [normal(row) for place, row in orders.items() if place not in planted | set(truth["quarantined"])]
    assert len(set(rest)) == len(rest)


def test_code_variants_differ_in_their_code_and_nothing_else(orders, truth):
    assert sum(map(len, truth["code_variants"])) >= 12
    for group in truth["code_variants"]:
        codes = [orders[place]["Code"] for place in group]
        assert len(set(codes)) == len(group) >= 3
        assert len({normal(orders[p]).replace(orders[p]["Code"].casefold(), "CODE") for p in group}) == 1


def test_two_to_three_percent_of_the_rows_say_nothing(orders, truth):
    assert 0.02 <= len(truth["quarantined"]) / len(orders) <= 0.03
    words = re.compile(r"[a-z]{3}|[\u4e00-\u9fff]{2}", re.IGNORECASE)
    empty = {"Problem": 0, "Repair": 0}
    for place in truth["quarantined"]:
        row = orders[place]
        for field in empty:
            empty[field] += not words.search(row[field]) and not words.search(
                row["Checks" if field == "Repair" else field]
            )
    assert min(empty.values()) >= 4
    for place in set(orders) - set(truth["quarantined"]):
        assert words.search(orders[place]["Problem"])
        assert words.search(orders[place]["Repair"])


def test_the_workbook_has_a_title_row_and_merged_header_cells():
    sheet = openpyxl.load_workbook(locate("cnc-repair") / "raw" / "work_orders.xlsx").active
    merged = {str(area) for area in sheet.merged_cells.ranges}
    assert "A1:I1" in merged
    assert {"D2:E2", "F2:G2", "C2:C3"} <= merged
    assert all(isinstance(row[1], dt.datetime) for row in sheet.iter_rows(min_row=4, values_only=True))


def test_the_chinese_orders_are_gb18030_and_not_utf_8():
    data = (locate("cnc-repair", "zh") / "raw" / "work_orders.csv").read_bytes()
    with pytest.raises(UnicodeDecodeError):
        data.decode("utf-8")
    assert "先" in data.decode("gb18030")
    assert "最后" in data.decode("gb18030")


def test_the_text_of_the_pdf_is_what_was_written(language):
    document = pypdfium2.PdfDocument(locate("cnc-repair", language) / "raw" / "manual.pdf")
    assert len(document) >= 5
    pages = "".join(page.get_textpage().get_text_range() for page in document)
    found = re.sub(r"\s", "", pages)
    blocks = read_blocks(f"manual_{language}.txt")
    assert {b.kind for b in blocks} == {"title", "heading", "paragraph", "item", "table"}
    for text in [b.text for b in blocks] + [cell for b in blocks for row in b.rows for cell in row]:
        assert re.sub(r"\s", "", text) in found


def test_the_guide_has_headings_and_a_table(language):
    document = Document(str(locate("cnc-repair", language) / "raw" / "service_guide.docx"))
    assert sum(p.style.name.startswith("Heading") for p in document.paragraphs) >= 4
    assert len(document.tables) == 1


def test_the_notes_have_a_heading_for_each_machine(language):
    text = (locate("cnc-repair", language) / "raw" / "notes.md").read_text("utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["VMC-850", "HMC-500", "TL-25"]


@pytest.mark.parametrize(
    ("name", "steps", "code"),
    [("spindle_log.csv", {0: 1, 240: 1}, "ALM-0412"), ("axis_log.csv", {-95: 1}, "ALM-0431")],
)
def test_the_logs_have_their_gap_doubled_time_clock_jump_and_fault(language, name, steps, code):
    rows = list(csv.DictReader((locate("cnc-repair", language) / "raw" / name).open(encoding="utf-8")))
    times = [dt.datetime.fromisoformat(row["timestamp"]) for row in rows]
    assert 1800 <= len(rows) <= 3600
    differences = [int((b - a).total_seconds()) for a, b in itertools.pairwise(times)]
    assert {d: differences.count(d) for d in set(differences)} == {1: len(rows) - 1 - len(steps)} | steps
    assert [row["alarm"] for row in rows if row["alarm"]] == [code]
    assert code in [row[0] for row in read_codes(language)]


def test_the_raw_data_is_small(language):
    raw = locate("cnc-repair", language) / "raw"
    assert sum(p.stat().st_size for p in raw.rglob("*")) < 400 * 1024


def test_the_spec_loads_and_reads_all_five_kinds(language):
    spec = load_project(locate("cnc-repair", language)).spec
    assert spec.language == language
    assert {s.kind for s in spec.sources} == {"work_orders", "fault_codes", "manuals", "notes", "sensor_logs"}
    for source in spec.sources:
        assert (locate("cnc-repair", language) / source.path).is_file()
    assert spec.caps["train"]["max_steps"] <= 40
    assert spec.caps["train"]["max_tokens_per_step"] <= 2048
    assert spec.caps["dry_run"]["steps"] == 30
    assert spec.caps["evaluate"] == {"generations": 16, "max_new_tokens": 64}


def test_what_is_loosened_is_a_warning_and_no_lower_bound(language):
    from specs.metrics import default_criteria

    spec = load_project(locate("cnc-repair", language)).spec
    for stage, added in spec.acceptance.items():
        default = {(c.metric, c.op): c.bound for c in default_criteria(stage)}
        for criterion in added:
            assert not criterion.blocking
            assert default[criterion.metric, criterion.op] == criterion.bound
