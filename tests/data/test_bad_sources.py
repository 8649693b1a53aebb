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
