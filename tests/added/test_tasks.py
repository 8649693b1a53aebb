"""The tasks that come with Gatewright, on small tables: what they write, and that their verifiers see what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.errors import InputError
from specs.stages import Quiet
from tasks.added import abbreviations, labelling
from tasks.added.job import AddedJob, HandedIn
from tasks.added.tables import read_csv, write_csv

PAIRS = {"PLC": "可编程逻辑控制器", "REF": "参考点", "NC": "数控"}


def job(folder: Path, **more: Any) -> AddedJob:
    (folder / "artifacts").mkdir(parents=True, exist_ok=True)
    fields = {"do": "run", "run": "r", "stage": "s", "attempt": 1, "language": "zh", "parameters": {}, "inputs": {}}
    return AddedJob.model_validate(
        {**fields, "artifacts": folder / "artifacts", "result": folder / "result.json", **more}
    )


@pytest.mark.parametrize(
    ("text", "explained"),
    [
        ("PLC报警", "PLC（可编程逻辑控制器）报警"),
        ("PLC（可编程逻辑控制器）报警", "PLC（可编程逻辑控制器）报警"),
        ("SPLC 与 PLC-2 与 PLC2 不展开", "SPLC 与 PLC-2 与 PLC2 不展开"),
        ("NC，REF。", "NC（数控），REF（参考点）。"),
    ],
)
def test_an_abbreviation_is_written_out_where_it_stands_by_itself_and_once(text, explained):
    expand = abbreviations.Expander(PAIRS, "explain")
    assert expand(text) == explained
    assert expand(explained) == explained


SHORTS = ("PLC", "NC", "REF", "X", "PLC柜", "数")
WORDS = ("数控", "数控系统", "系统", "参考点", "PLC控制器", "控制器", "NC", "a b")
dictionaries = st.dictionaries(st.sampled_from(SHORTS), st.sampled_from(WORDS), min_size=1, max_size=5).map(
    lambda known: {short: long for short, long in known.items() if short != long}
)
texts = st.lists(st.sampled_from([*SHORTS, *WORDS, "报警", " ", "-", "2", "（", "）", "x"]), max_size=12).map("".join)


@given(dictionaries, texts)
@settings(max_examples=100, deadline=None)
def test_what_was_expanded_is_explained_whatever_expansions_share(known, text):
    for style in ("explain", "replace"):
        new = abbreviations.Expander(known, style)(text)
        verifier = abbreviations.Verifier(known, style)
        assert verifier.explains(text, new)
        assert verifier.explains(new, new)


@given(texts, st.integers(0, 40), st.sampled_from(["", "坏", "PLC"]))
@settings(max_examples=100, deadline=None)
def test_any_other_change_is_not_explained(text, place, put):
    new = abbreviations.Expander(PAIRS, "explain")(text)
    place = min(place, len(new))
    changed = new[:place] + put + new[place + (not put) :]
    written_back = len(changed) < len(text)
    verifier = abbreviations.Verifier(PAIRS, "explain")
    if put == "坏" or written_back:
        assert not verifier.explains(text, changed)


@pytest.mark.parametrize(
    ("known", "text", "left"),
    [
        ({"PLC": "数控", "X": "数控系统"}, "X（数控系统）停机", 0),
        ({"PLC": "数控", "X": "数控系统"}, "X停机，PLC（数控）", 1),
        ({"P": "PLC控制器", "PLC": "可编程逻辑控制器"}, "PLC控制器", 0),
        (PAIRS, "NC与REF", 2),
    ],
)
def test_only_abbreviations_outside_of_expansions_are_left(known, text, left):
    assert abbreviations.Verifier(known, "explain").alone(text) == left


def test_a_dictionary_with_two_meanings_is_refused_by_name(tmp_path):
    (tmp_path / "d.csv").write_text("abbreviation,expansion\nNC,数控\nNC,normally closed\n")
    with pytest.raises(InputError, match="'NC' two meanings"):
        abbreviations.dictionary(tmp_path / "d.csv")


def samples(folder: Path, number: int = 30) -> Path:
    columns = ("sample_id", "device_model", "fault_type", "prompt", "answer")
    rows = [dict(zip(columns, (f"s{i:02}", "M", "=1+1", f"问题 {i}", f"回答 {i}"), strict=True)) for i in range(number)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "samples.parquet")
    return folder / "samples.parquet"


PARAMETERS = {"samples": 10, "seed": 1, "labels": "正确,错误"}


def labelled(folder: Path, change: Any = lambda rows: rows, encoding: str = "gb18030") -> dict[str, float | None]:
    """The metrics after a person filled the sheet in, `change` being what the person did besides."""
    table = samples(folder)
    out = job(folder / "sheet", parameters=PARAMETERS, inputs={"samples": table})
    labelling.sheet(out, Quiet())
    rows = change([{**row, "label": "正确"} for row in read_csv(out.artifacts / "sheet.csv", labelling.SHOWN)])
    stage = job(folder / "stage", parameters=PARAMETERS, inputs={"samples": table})
    (stage.artifacts / "sheet").mkdir()
    (stage.artifacts / "sheet" / "sheet.csv").write_bytes((out.artifacts / "sheet.csv").read_bytes())
    write_csv(folder / "filled.csv", (*labelling.SHOWN, "label", "comment"), rows)
    filled = stage.artifacts / "handed_in"
    filled.write_bytes((folder / "filled.csv").read_bytes().decode().encode(encoding))
    given = HandedIn(sheet=stage.artifacts / "sheet", file=filled, author="li", authentication="token")
    labelling.run(stage.model_copy(update={"handed_in": given}), Quiet())
    return labelling.metrics(stage, Quiet()).metrics


def test_a_sheet_filled_in_with_a_chinese_program_is_read_whole(tmp_path):
    assert labelled(tmp_path) == {
        "samples_labelled": 10,
        "samples_unlabelled": 0,
        "labels_unknown": 0,
        "rows_unknown": 0,
        "sheet_differs": 0,
        "right_share": 1.0,
    }


def test_no_cell_of_the_sheet_is_computed_and_nothing_of_the_page_is_markup(tmp_path):
    labelled(tmp_path)
    assert "'=1+1" in (tmp_path / "sheet" / "artifacts" / "sheet.csv").read_text("utf-8-sig")
    line = dict.fromkeys(labelling.SHOWN, "<script>")
    assert "<script>" not in labelling.page([line], ["<b>"], "zh")


@pytest.mark.parametrize(
    ("change", "metric"),
    [
        (lambda rows: [{**rows[0], "label": ""}, *rows[1:]], "samples_unlabelled"),
        (lambda rows: rows[1:], "samples_unlabelled"),
        (lambda rows: [{**rows[0], "label": "也许"}, *rows[1:]], "labels_unknown"),
        (lambda rows: [*rows, {**rows[0], "sample_id": "invented"}], "rows_unknown"),
        (lambda rows: [*rows, rows[0]], "rows_unknown"),
    ],
)
def test_each_way_of_filling_it_in_wrongly_is_counted(tmp_path, change, metric):
    assert labelled(tmp_path, change)[metric] == 1


def test_a_workbook_or_a_table_without_the_columns_is_refused_in_words(tmp_path):
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04...")
    with pytest.raises(InputError, match="workbook"):
        read_csv(tmp_path / "a.xlsx", ["label"])
    (tmp_path / "b.csv").write_text("sample_id;labl\ns1;x\n")
    with pytest.raises(InputError, match="no column label"):
        read_csv(tmp_path / "b.csv", ["sample_id", "label"])


def test_a_row_with_more_cells_than_the_first_line_is_refused_and_nothing_of_it_is_cut(tmp_path):
    (tmp_path / "d.csv").write_text("abbreviation,expansion\nNC,numerical control\nREF,reference, home\n")
    with pytest.raises(InputError, match=r"row 3 of d\.csv has more cells"):
        abbreviations.dictionary(tmp_path / "d.csv")
