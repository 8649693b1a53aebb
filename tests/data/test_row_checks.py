"""Rows that would teach something wrong are quarantined with a reason, or the whole table is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specs.errors import SourceError
from specs.parameters import DataParameters
from specs.project import Project
from specs.stages import Quiet
from tasks.data.reading import read_sources
from tasks.data.records import Intake
from tasks.data.synonyms import NEEDED, propose, synonyms

ORDERS = {"phenomenon": "Problem", "repair": "Repair", "fault_type": "Code"}


def intake_of(folder: Path, text: str, columns: dict[str, str], kind: str = "work_orders", **source: Any) -> Intake:
    (folder / "a.csv").write_text(text)
    one = {"kind": kind, "path": "a.csv", "columns": columns, **source}
    spec = Project.model_validate({"project": "p", "base_model": "m", "sources": [one]})
    return read_sources(folder, spec, DataParameters(), len, Quiet())


def orders(*more: str, header: str = "Problem,Repair,Code") -> str:
    rows = [f"spindle {n} is loud,replaced belt {n},A{n}" for n in range(40)]
    return "\n".join([header, *rows, *more]) + "\n"


@pytest.mark.parametrize(
    "second",
    [
        "Repair,Problem,Code",
        "Code,Problem,Repair",
        "Action taken,Symptom,Fault code",
        "维修措施,故障现象,故障代码",
        " repair , PROBLEM ,Code",
    ],
)
def test_a_second_section_with_its_columns_in_another_order_is_refused(tmp_path: Path, second: str):
    with pytest.raises(SourceError, match="in another order") as caught:
        intake_of(tmp_path, orders(second, "replaced seal,pump leaks,B1"), ORDERS)
    assert "#41" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("second", ["Problem,Repair,Code", "problem , REPAIR,code", "故障现象,维修措施,故障代码"])
def test_a_second_header_in_the_same_order_is_out_of_scope(tmp_path: Path, second: str):
    intake = intake_of(tmp_path, orders(second, "pump leaks,replaced seal,B1"), ORDERS)
    assert [(f.unit.location, f.reason) for f in intake.fates] == [("#41", "repeated_header")]
    assert intake.drafts[-1].fault_type == "B1"


def test_words_that_are_also_names_of_columns_are_no_header(tmp_path: Path):
    intake = intake_of(tmp_path, orders("machine failure,repair of the fault,fault"), ORDERS)
    assert intake.fates == []


def shifted(row: str) -> str:
    rows = [f"2004-07-{n % 28 + 1:02d},A,bucket {n} will not open,PM0{n % 2 + 1},{n}.05" for n in range(60)]
    return "\n".join(["Date,Asset,Problem,Type,Cost", *rows, row]) + "\n"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2003-12-31,B,won,t swing,PM01", "cells_shifted"),
        ("2003-12-31,B,won,t swing,PM01,12.50", "more_cells_than_columns"),
        ("2003-12-31,B,will not swing,PM03,12.50", None),
        ("2003-12-31,B,will not swing,PM01,unknown", None),
        ("2003-12-31,B,will not swing,PM01", None),
        ('2003-12-31,B,"leak at \\O"" ring",PM01,3', "backslash_before_quote"),
        ("2003-12-31,B,see C:\\dir\\file,PM01,3", None),
    ],
)
def test_a_delimiter_inside_a_text_is_seen_by_what_the_columns_usually_hold(
    tmp_path: Path, row: str, reason: str | None
):
    intake = intake_of(tmp_path, shifted(row), {"phenomenon": "Problem", "repair": "Problem", "date": "Date"})
    assert [f.reason for f in intake.fates] == ([reason] if reason else [])
    assert len(intake.drafts) == (60 if reason else 61)


def test_na_is_a_value_and_the_null_words_are_empty(tmp_path: Path):
    rows = ["pump leaks,replaced seal,NA", "pump leaks,replaced seal,N/A", "pump leaks,replaced seal,无"]
    intake = intake_of(tmp_path, "Problem,Repair,Code\n" + "\n".join(rows), ORDERS)
    assert [d.fault_type for d in intake.drafts] == ["NA", "", ""]


def test_the_machine_of_a_table_without_such_a_column_is_named_in_the_source(tmp_path: Path):
    intake = intake_of(tmp_path, orders(), ORDERS, device_model="VMC-850")
    assert {d.device_model for d in intake.drafts} == {"VMC-850"}
    columns = {"fault_type": "Code", "meaning": "Problem"}
    codes = intake_of(tmp_path, orders(), columns, "fault_codes", device_model="VMC-850")
    assert {d.device_model for d in codes.drafts} == {"VMC-850"}


HEADERS = {
    "工单号,设备型号,故障现象,检查步骤,维修措施,故障代码,日期": {
        "device_model": "设备型号",
        "phenomenon": "故障现象",
        "steps": "检查步骤",
        "repair": "维修措施",
        "fault_type": "故障代码",
        "date": "日期",
        "order_id": "工单号",
    },
    "WO #,Equipment,Symptom (as told),ActionTaken,Reported on": {
        "device_model": "Equipment",
        "phenomenon": "Symptom (as told)",
        "repair": "ActionTaken",
        "date": "Reported on",
        "order_id": "WO #",
    },
    "BscStartDate,Asset,OriginalShorttext,PMType,Cost": {
        "device_model": "Asset",
        "phenomenon": "OriginalShorttext",
        "date": "BscStartDate",
    },
    "Machine_failure,Repair notes,MachineType": {
        "device_model": "MachineType",
        "phenomenon": "Machine_failure",
        "repair": "Repair notes",
    },
    "colour,weight": {},
}


@pytest.mark.parametrize("header", HEADERS)
def test_a_mapping_is_proposed_from_what_people_call_their_columns(header: str):
    assert propose(header.split(","), "work_orders") == HEADERS[header]


@pytest.mark.parametrize("language", ["zh", "en"])
def test_of_columns_in_two_languages_those_of_the_project_are_proposed(language: str):
    header = ["id", "level", "en.description", "en.solution", "zh_CN.description", "zh_CN.solution"]
    key = "zh_CN" if language == "zh" else "en"
    wanted = {"fault_type": "id", "meaning": f"{key}.description", "remedy": f"{key}.solution"}
    assert propose(header, "fault_codes", language) == wanted


@pytest.mark.parametrize("kind", ["work_orders", "fault_codes"])
def test_every_synonym_finds_a_field_when_it_stands_alone(kind: Any):
    assert set(NEEDED[kind]) <= set(synonyms(kind))
    for field, names in synonyms(kind).items():
        assert all(propose([name], kind) for name in names[::6]), field
