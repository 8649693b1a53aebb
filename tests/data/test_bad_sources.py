"""Sources that cannot be used: each is an error with a message and a way out, and the probe finds all at once."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from specs.errors import SourceError
from specs.parameters import DataParameters
from specs.project import Project
from specs.stages import Quiet
from tasks.data.probe import probe_sources
from tasks.data.reading import read_sources
from tests.support.raw_project import HEADERS


def orders_spec(path: str = "raw/x.csv", **source) -> Project:
    return Project.model_validate(
        {
            "project": "p",
            "base_model": "m",
            "sources": [{"kind": "work_orders", "path": path, "columns": HEADERS["en"], **source}],
        }
    )


HEADER = b"Machine,Problem,Checks,Repair,Code\n"
ROW = b"VMC-850,spindle is loud,checked belt,replaced belt,A1\n"


@pytest.mark.parametrize(
    ("content", "source", "words"),
    [
        (None, {}, "no such file"),
        (b"", {}, "is empty"),
        (b"\n \n", {}, "no cell with text"),
        (HEADER, {}, "no data rows"),
        (HEADER.replace(b"Problem", b"Problems"), {}, "no column 'Problem'"),
        (HEADER.replace(b"Checks", b"Repair") + ROW, {}, "stands there 2 times"),
        (HEADER + ROW.replace(b"belt", "gürtel".encode("latin-1")), {}, "not UTF-8"),
        (HEADER + ROW.replace(b"belt", "皮带".encode("gb18030")), {"encoding": "utf-8"}, "is not utf-8"),
        (HEADER + b"\x00\x01\x02" + ROW, {}, "zero bytes"),
    ],
)
def test_a_table_that_cannot_be_used_is_a_source_error_with_a_way_out(tmp_path: Path, content, source, words):
    (tmp_path / "raw").mkdir()
    if content is not None:
        (tmp_path / "raw/x.csv").write_bytes(content)
    spec = orders_spec(**source)
    with pytest.raises(SourceError, match=words) as caught:
        read_sources(tmp_path, spec, DataParameters(), len, Quiet())
    assert "raw/x.csv" in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 2
    _, problems = probe_sources(tmp_path, spec)
    assert [p.rule for p in problems] == [caught.value.message]
    assert problems[0].path == "sources[0]"


def test_a_missing_column_names_the_near_ones(tmp_path: Path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/x.csv").write_bytes(HEADER.replace(b"Problem", b"Problem text") + ROW)
    _, problems = probe_sources(tmp_path, orders_spec())
    assert "Problem text" in problems[0].way_out


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("raw/x.xlsx", b"PK no workbook", "not a readable XLSX"),
        ("raw/x.xls", b"no workbook at all", "not a readable workbook"),
        ("raw/x.csv.gz", b"\x1f\x8b broken", "not a complete gzip"),
        ("raw/x.doc", b"old", "cannot be read from"),
    ],
)
def test_broken_containers_are_source_errors(tmp_path: Path, name, content, words):
    (tmp_path / "raw").mkdir()
    (tmp_path / name).write_bytes(content)
    _, problems = probe_sources(tmp_path, orders_spec(name))
    assert words in problems[0].rule
    assert problems[0].way_out


@pytest.mark.parametrize("name", ["m.pdf", "m.docx", "m.md"])
def test_documents_without_text_are_source_errors(tmp_path: Path, name):
    (tmp_path / name).write_bytes(b"   " if name == "m.md" else b"%PDF-1.4 broken")
    spec = Project.model_validate({"project": "p", "base_model": "m", "sources": [{"kind": "manuals", "path": name}]})
    _, problems = probe_sources(tmp_path, spec)
    assert len(problems) == 1
    assert name in problems[0].rule


def test_all_problems_are_found_at_once(tmp_path: Path, project: Callable[[str], Project]):
    spec = project("en")
    (tmp_path / "raw/orders.xlsx").write_bytes(b"")
    (tmp_path / "raw/codes.csv").write_bytes(b"a,b\n1,2\n")
    (tmp_path / "raw/manual.md").unlink()
    summaries, problems = probe_sources(tmp_path, spec)
    assert sorted(p.path for p in problems) == ["sources[0]", "sources[1]", "sources[2]"]
    assert {s.kind: s.rows for s in summaries}["sensor_logs"] == 1200


def test_a_probe_counts_rows_columns_and_encodings(tmp_path: Path, project: Callable[[str], Project]):
    summaries, problems = probe_sources(tmp_path, project("zh"))
    assert problems == []
    orders = next(s for s in summaries if s.kind == "work_orders")
    assert orders.rows == 208
    assert orders.columns == list(HEADERS["zh"].values())
    assert orders.encodings == {"raw/orders.csv": "gb18030"}


def test_a_file_that_two_sources_claim_is_refused(tmp_path: Path, project: Callable[[str], Project]):
    spec = project("en")
    spec = spec.model_copy(update={"sources": [*spec.sources, spec.sources[0]]})
    _, problems = probe_sources(tmp_path, spec)
    assert "belongs to two sources" in problems[0].rule


def test_a_link_out_of_the_project_is_refused(tmp_path: Path):
    inside = tmp_path / "p"
    inside.mkdir()
    (tmp_path / "outside.csv").write_bytes(HEADER + ROW)
    (inside / "x.csv").symlink_to(tmp_path / "outside.csv")
    _, problems = probe_sources(inside, orders_spec("x.csv"))
    assert "leads out of the project" in problems[0].rule


def test_gzipped_tables_and_globs_are_read(tmp_path: Path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(HEADER + ROW))
    (tmp_path / "b.csv").write_bytes(HEADER + ROW + ROW)
    (tmp_path / "c.png").write_bytes(b"x")
    summaries, problems = probe_sources(tmp_path, orders_spec("*.*"))
    assert problems == []
    assert (summaries[0].rows, summaries[0].skipped) == (3, ["c.png"])


def log_problem(folder: Path, text: str, **source: object) -> str:
    """What is said of a sensor log."""
    (folder / "log.csv").write_text(text, encoding="utf-8")
    spec = {"project": "p", "base_model": "m", "sources": [{"kind": "sensor_logs", "path": "log.csv", **source}]}
    [problem] = probe_sources(folder, Project.model_validate(spec))[1]
    return problem.way_out


def test_a_log_without_a_header_or_times_is_told_what_it_needs(tmp_path: Path):
    rows = "".join(f"{n}.5\t{n + 1}\t{n + 2}\n" for n in range(30))
    assert "wide: {seconds_per_row: ...}" in log_problem(tmp_path, rows)
    timed = "When,load\n" + "".join(f"2026-01-31 08:00:{n:02d},{n}\n" for n in range(30))
    assert "add timestamp: When" in log_problem(tmp_path, timed)
    assert "no column holds times" in log_problem(tmp_path, "UDI,load\n" + "".join(f"{n},{n}\n" for n in range(30)))


def proposal(folder: Path, text: str, kind: str = "work_orders") -> str:
    """What is proposed for a table in which no column is called as the spec says."""
    (folder / "raw.csv").write_text(text, encoding="utf-8")
    columns = {"phenomenon": "?p", "repair": "?r"} if kind == "work_orders" else {"fault_type": "?c", "meaning": "?m"}
    source = {"kind": kind, "path": "raw.csv", "columns": columns}
    spec = {"project": "p", "base_model": "m", "sources": [source]}
    [problem] = probe_sources(folder, Project.model_validate(spec))[1]
    return problem.way_out


def test_a_table_with_one_text_per_order_is_shown_the_way_to_notes(tmp_path: Path):
    way_out = proposal(tmp_path, "Asset,Short text\n" + "".join(f"A,bucket {n} will not open\n" for n in range(9)))
    assert 'phenomenon: "Short text"' in way_out
    assert "kind: notes" in way_out


def test_a_column_of_numbers_is_not_proposed_as_a_text(tmp_path: Path):
    way_out = proposal(tmp_path, "Machine,Machine failure\n" + "".join(f"M{n},{n % 2}\n" for n in range(9)))
    assert 'device_model: "Machine"' in way_out
    assert "phenomenon:" not in way_out


def test_a_row_of_data_is_not_taken_for_a_header(tmp_path: Path):
    rows = "".join(f"word{n},P,word{n},0.{n}\n" for n in range(9)) + "fault,P,fault,0.008\n"
    assert (
        "fault" not in proposal(tmp_path, "tokens,NE,alias,score\n" + rows, "fault_codes").partition("columns are")[0]
    )
