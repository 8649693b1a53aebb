"""The page on sources says what the code does: its examples load, its formats and limits are those of the readers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specs.loading import parse_project
from tasks.data import files, ocr, structured, tables
from tasks.data.row_checks import NULLS

PAGE = (Path(__file__).parents[2] / "docs" / "sources.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"<!-- sources -->\n```yaml\n(.*?)```", PAGE, re.DOTALL)
TABLE = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|", PAGE, re.MULTILINE))
NAMES = {"tables of a PDF": "pdf", "Markdown": "md"}


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_example_is_a_valid_spec(snippet: str):
    spec = parse_project(f"project: p\nbase_model: m\n{snippet}")
    assert spec.sources


def test_every_kind_has_an_example():
    kinds = {s.kind for snippet in SNIPPETS for s in parse_project(f"project: p\nbase_model: m\n{snippet}").sources}
    assert kinds == set(files.SUFFIXES)


@pytest.mark.parametrize("kind", files.SUFFIXES)
def test_the_formats_of_the_table_are_those_that_are_read(kind: str):
    wanted = TABLE[kind] if TABLE[kind].strip() != "the same" else TABLE["work_orders"]
    told = {NAMES.get(name.strip(), name.strip().lower()) for name in wanted.split(",")}
    read = {suffix.removesuffix(".gz").lstrip(".") for suffix in files.SUFFIXES[kind]} - {"htm", "markdown"}
    assert told == read


def test_limits_and_words_are_those_of_the_code():
    assert f"{files.MAX_UNPACKED_BYTES >> 30} GiB" in PAGE
    assert f"past {files.FREE_BYTES >> 20} MiB) to more than {files.MAX_RATIO} times" in PAGE
    assert f"above {files.MAX_FILE_BYTES >> 20} MiB, PDFs above {files.MAX_PDF_PAGES} pages" in PAGE
    assert f"above {structured.MAX_COLUMNS} columns" in PAGE
    assert f"first {tables.HEADER_SEARCH_ROWS} rows" in PAGE
    assert f"mean confidence of {ocr.LEAST_CONFIDENCE:g} of 100" in PAGE
    line = next(line for line in PAGE.splitlines() if "Words for nothing" in line)
    assert {word.lower() for word in re.findall(r"`([^`]+)`", line.split(". `NA`")[0])} <= NULLS
