"""Work orders find their fault code many to one: unmatched codes are counted, keys that are no keys are named."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.errors import SourceError
from specs.sources import FaultCodes, WorkOrders
from tasks.data.joins import Joined
from tasks.data.records import Intake, SourceFile
from tasks.data.tabular import CodeTable, read_fault_codes, read_work_orders
from tasks.data.wording import render

CODES = [["E1", "overload", "reset the drive"], ["E2", "door open", "close the door"]]
ORDERS = [["Spindle stops", "Replaced the belt", c] for c in ("E1", "e-1", "E9", "E9", "", "E2")]


def write(path: Path, header: list[str], rows: list[list[str]]) -> SourceFile:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return SourceFile(path.name, path)


def joined(folder: Path, codes: list[list[str]], **settings: str) -> Intake:
    intake, table = Intake(), CodeTable()
    code_settings = {k: v for k, v in settings.items() if k == "doubled_codes"}
    order_settings = {k: v for k, v in settings.items() if k == "code_meaning"}
    columns = {"fault_type": "C", "meaning": "M", "remedy": "R"}
    source = FaultCodes.model_validate({"kind": "fault_codes", "path": "c.csv", "columns": columns, **code_settings})
    read_fault_codes(write(folder / "c.csv", ["C", "M", "R"], codes), source, intake, table)
    columns = {"phenomenon": "P", "repair": "R", "fault_type": "C"}
    orders = WorkOrders.model_validate({"kind": "work_orders", "path": "o.csv", "columns": columns, **order_settings})
    read_work_orders(write(folder / "o.csv", ["P", "R", "C"], ORDERS), orders, intake, table)
    return intake


def test_every_order_keeps_its_row_and_unmatched_codes_are_counted_by_name(tmp_path: Path):
    intake = joined(tmp_path, CODES)
    assert sum(d.kind == "work_order" for d in intake.drafts) == len(ORDERS)
    assert intake.joins["o.csv"].summary() == {
        "with_code": 5,
        "matched": 3,
        "unmatched": {"E9": 2},
        "unmatched_others": 0,
    }
    assert intake.counts["unexplained_codes"] == 2


@pytest.mark.parametrize(("setting", "told"), [("in_prompt", True), ("left_out", False)])
def test_the_meaning_of_the_code_is_in_the_prompt_where_the_spec_says_so(tmp_path: Path, setting: str, told: bool):
    intake = joined(tmp_path, CODES, code_meaning=setting)
    prompts = [render(d, "en")[0] for d in intake.drafts if d.kind == "work_order" and d.fault_type == "E1"]
    assert len(prompts) == 2
    assert all(("E1 (overload)" in prompt) == told and "E1" in prompt for prompt in prompts)


def test_a_code_with_two_contents_is_no_key_and_is_named(tmp_path: Path):
    doubled = [*CODES, ["E1", "too hot", "cool it"]]
    intake = joined(tmp_path, doubled)
    assert intake.doubled_codes == ["E1"]
    assert [f.reason for f in intake.fates] == ["code_with_two_meanings"] * 2
    assert intake.joins["o.csv"].unmatched == {"E1": 1, "e-1": 1, "E9": 2}
    with pytest.raises(
        SourceError, match=r"c.csv: 1 codes stand twice with different contents: E1 \(#1, #3\)"
    ) as error:
        joined(tmp_path, doubled, doubled_codes="error")
    assert "doubled_codes: quarantine" in error.value.hint


@given(st.lists(st.tuples(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), st.booleans()), max_size=200))
def test_the_sums_of_a_join_hold(rows: list[tuple[str, bool]]):
    one = Joined()
    for code, found in rows:
        one.count(code, found)
    told = one.summary()
    assert told["with_code"] == len(rows)
    assert told["matched"] + sum(told["unmatched"].values()) + told["unmatched_others"] == len(rows)
