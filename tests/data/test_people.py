"""Names of people in columns of their own are masked wherever the row repeats them; codes and other words stay."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.project import Project
from tasks.data.people import people_columns, people_in, spans_of
from tasks.data.privacy import find
from tasks.verify.data import metrics
from tasks.verify.personal import personal_data
from tests.support.raw_project import run_stage, stage_context


def test_columns_that_name_people_are_told_by_their_headers():
    header = [
        "Technician",
        "Machine",
        "维修人",
        "Operator panel",
        "Reported By",
        "info.operator",
        "Program name",
        "姓名",
    ]
    assert people_columns(header) == [0, 2, 4, 5, 7]


@pytest.mark.parametrize(
    ("cell", "people"),
    [
        ("John Doe", ("John Doe",)),
        ("张伟、李强", ("张伟", "李强")),
        ("Mark Smith / Ann Lee", ("Mark Smith", "Ann Lee")),
        ("王建国师傅", ("王建国",)),
        ("Maria O'Neil", ("Maria O'Neil",)),
        ("Night shift", ()),
        ("白班", ()),
        ("Team A", ()),
        ("Siemens", ()),
        ("A06B-6114", ()),
        ("4711", ()),
        ("", ()),
    ],
)
def test_a_cell_names_people_or_something_else(cell: str, people: tuple[str, ...]):
    assert people_in(cell) == people


def test_a_name_is_found_whole_in_parts_and_in_capitals_and_small_words_stay():
    text = "john doe said that Doe left the mark; SMITH, John's tool, MARK-10 and Smith-200 stay"
    assert [text[a:b] for a, b in spans_of(("John Doe", "Mark Smith"), text)] == ["john doe", "John", "Doe", "SMITH"]


codes = st.from_regex(r"[A-Z]{1,4}-?[0-9]{2,6}(-[0-9A-Z]{1,4}){0,2}", fullmatch=True)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["John Doe", "Ann Lee", "Maria Garcia", "王建国", "李强"]),
    st.sampled_from(["{} said", "ask {}.", "{}反映", "由{}更换", "({})", "call {} now"]),
    codes,
)
def test_a_name_of_the_row_is_always_masked_and_a_code_beside_it_never(name: str, frame: str, code: str):
    text = f"{code} {frame.format(name)} {code}"
    found = [text[f.start : f.end] for f in find(text, people=(name,))]
    assert found == [name]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["微信：{}", "微信号：{}", "WeChat: {}", "wechat:{}，", "微信:{} 来电"]),
    st.from_regex(r"[a-z][a-z0-9_]{5,12}", fullmatch=True),
    st.sampled_from(["QQ：{}", "QQ号{}", "qq {}。", "QQ:{}, call"]),
    st.integers(10_000, 10**10 - 1),
)
def test_messenger_accounts_are_masked_and_the_verifier_finds_what_is_left(wechat, account, qq, number):
    text = f"{wechat.format(account)} {qq.format(number)}"
    found = [(f.kind, text[f.start : f.end]) for f in find(text)]
    kinds = {kind for kind, _ in found}
    assert {part for _, part in found} == {account, str(number)}
    assert kinds <= {"account", "phone"}
    assert {account, str(number)} <= set(personal_data(text))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["fuse", "coil", "motor", "pump", "brake"]),
    st.from_regex(r"[0-9]{1,4}(\.[0-9]{1,2})?(A|V|W|kW|Hz|mm|bar|rpm)?", fullmatch=True),
    st.sampled_from(["max", "min", "nom", "typ", "dc", "rms", "idle"]),
)
def test_a_part_at_a_rating_is_no_address(part: str, value: str, word: str):
    text = f"replaced {part}@{value}.{word} today"
    assert not find(text)
    assert not personal_data(text)


@pytest.mark.parametrize(
    "text", ["QQ-12345 relay", "PQQ12345", "微信:A06B-6114-H103", "微信发送A06B-6114照片", "SVX: part88a"]
)
def test_codes_beside_such_words_stay(text: str):
    assert not find(text)
    assert not personal_data(text)


@pytest.mark.parametrize("address", ["bob@163.com", "bob@3m.com", "a.b@qq.com", "li@mail.example.cn"])
def test_addresses_with_digits_in_their_domain_are_found(address: str):
    assert [f.kind for f in find(f"to {address} now")] == ["email"]


def test_a_technician_of_a_column_is_in_no_sample(tmp_path: Path, tiny_model: Path):
    rows = [
        f"Order {n}: the feed of axis {n} stops warm,Replaced fuse {n}{', Jane Roe tested it' if n < 3 else ''}"
        for n in range(1, 31)
    ]
    cells = "".join(f'"{p}","{r}",Jane Roe\n' for p, r in (row.split(",", 1) for row in rows))
    (tmp_path / "a.csv").write_text(f"Problem,Repair,Technician\n{cells}", encoding="utf-8")
    columns = {"phenomenon": "Problem", "repair": "Repair"}
    spec = Project.model_validate(
        {"project": "p", "base_model": "m", "sources": [{"kind": "work_orders", "path": "a.csv", "columns": columns}]}
    )
    result = run_stage(tmp_path, spec, tiny_model, tmp_path / "out")
    answers = pq.read_table(tmp_path / "out/artifacts/samples.parquet")["answer"].to_pylist()
    assert not [a for a in answers if "Roe" in a or "Jane" in a]
    assert sum("[NAME]" in a for a in answers) == 2
    assert any("columns that name people" in note for note in result.notes)
    context = stage_context(tmp_path, spec, tiny_model, tmp_path / "out").model_dump(mode="json")
    found = metrics(tmp_path / "out", {}, context)
    assert (found["samples_without_provenance"].value, found["claims_unfounded"].value) == (0, 0)
    assert found["personal_data_masked"].value == 2
