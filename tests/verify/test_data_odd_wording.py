"""No false alarm: honest samples of oddly worded, masked and shortened sources pass every check of the verifier."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from specs.project import Project
from tasks.data.colloquial import structure
from tasks.data.privacy import Masker
from tasks.data.records import Draft, Unit
from tasks.data.wording import shorten_prompt
from tasks.verify.data import metrics
from tasks.verify.data_tables import ends_alike
from tests.support.raw_project import run_stage, stage_context, write_csv

HONEST = (
    "samples_without_provenance",
    "claims_unfounded",
    "answer_tokens_cut",
    "rows_unaccounted",
    "characters_unexplained",
    "code_variants_lost",
    "personal_data_left",
)
COLUMNS = {"device_model": "M", "phenomenon": "P", "repair": "R", "fault_type": "F"}
LIMIT = 96

PROBLEMS = {
    "en": [
        "the turret of {} jerks\nAlarm: 414 servo (axis)",
        "Machine: the old {}\nMeaning: nobody knows",
        "the {} hums\nWhat does alarm 5 say",
        "the {} leaks, call 13800138000 for the key",
        "Mr. Wang Wei saw that the {} drifts",
    ],
    "zh": [
        "{}抖动\n报警 414 伺服",
        "{}过热\n报警：414 (伺服)\n设备：旧机床",
        "现象 ：{}漏油",
        "{}异响，联系张师傅",
        "王工说{}不动作，电话13800138000",
    ],
}
REPAIRS = {
    "en": [
        "Checked the {} and its plug. At last, replaced it",
        "Checked the {}. Finally reset",
        "Mr. Li Lei said the {} was dry. Mr. Wang Wei greased it",
        "**Problem** : {} stuck **Repair** : replaced it",
    ],
    "zh": [
        "先检查{}与电缆，再检查端子，最后更换",
        "检查{}，再次检查插头，更换",
        "**现象**：{}卡死\n**处理** ：更换",
        "检查{}，张师傅更换",
    ],
}
PARTS = {
    "en": ["spindle", "pump", "chuck", "encoder", "relay", "filter", "probe"],
    "zh": ["主轴", "刀库", "油泵", "卡盘", "丝杠", "尾座", "滤芯"],
}
LONG = {"en": " and the light beside the door of the cabinet blinks", "zh": "，电柜门旁边的指示灯一直在闪"}


def rows_of(language: str) -> list[list[str]]:
    """Every problem with every repair, about another part; every second one too long for the limit."""
    found = []
    for i, problem in enumerate(PROBLEMS[language]):
        for k, repair in enumerate(REPAIRS[language]):
            part = f"{PARTS[language][(i * 4 + k) % 7]} {i * 4 + k}"
            told = problem.format(part) + LONG[language] * ((i + k) % 2 * 4)
            found.append([f"VM-{i}", told, repair.format(part), f"E{k}"])
    return found


@pytest.mark.parametrize("language", ["en", "zh"])
def test_odd_masked_and_shortened_sources_raise_no_alarm(tmp_path: Path, tiny_model: Path, language: str):
    rows = rows_of(language)
    write_csv(tmp_path / "a.csv", list("MPRF"), rows)
    stop = ". " if language == "en" else "。"
    (tmp_path / "n.txt").write_text("\n\n".join(f"{p}{stop}{r}{stop}" for _, p, r, _ in rows), encoding="utf-8")
    turns = [
        [{"role": "user", "content": p}, {"role": "assistant", "content": f"Answer 1: {r[:20]}"}] for _, p, r, _ in rows
    ]
    records = [{"messages": pair * (1 + k % 2)} for k, pair in enumerate(turns)]
    (tmp_path / "i.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    spec = Project.model_validate(
        {
            "project": "p",
            "language": language,
            "base_model": "m",
            "sources": [
                {"kind": "work_orders", "path": "a.csv", "columns": COLUMNS},
                {"kind": "notes", "path": "n.txt"},
                {"kind": "instructions", "path": "i.jsonl"},
            ],
        }
    )
    learnt = {"en": "every_answer", "zh": "last_answer"}[language]
    parameters = {"over_long": "truncate_prompt", "max_length": LIMIT, "conversation_loss": learnt}
    run_stage(tmp_path, spec, tiny_model, tmp_path / "out", **parameters)
    context = stage_context(tmp_path, spec, tiny_model, tmp_path / "out", **parameters)
    found = metrics(tmp_path / "out", {}, context.model_dump(mode="json"))
    assert {name: (found[name].value, found[name].reason) for name in HONEST} == dict.fromkeys(HONEST, (0, ""))
    ledger = pq.read_table(tmp_path / "out/artifacts/row_ledger.parquet").to_pylist()
    assert {row["source"] for row in ledger if row["cut_tokens"]} == {"a.csv", "n.txt", "i.jsonl"}
    assert found["personal_data_masked"].value


@pytest.mark.parametrize(
    ("answer", "cell", "alike"),
    [
        ("检查：\n1. 检查刀库\n维修：更换", "先检查刀库最后更换", True),
        ("检查：\n1. 检查刀库\n维修：更换", "先检查刀库最后更换轴承", False),
        ("Checks:\n1. looked\nRepair: OK", "lookedOK", True),
        ("Checks:\n1. looked\nRepair: ", "lookedOK", False),
        ("Repair: replaced the fan", "replacedthefan", True),
        ("Repair: replaced the", "replacedthefan", False),
    ],
)
def test_an_answer_is_cut_exactly_when_its_end_is_not_that_of_the_cell(answer: str, cell: str, alike: bool):
    assert ends_alike(answer, cell) is alike


def test_a_title_is_never_cut_off_its_name():
    parts = structure("Pump leaks. Dr. Li checked the seal. Mr. Wang Wei replaced it.")
    assert (parts.phenomenon, parts.steps, parts.repair) == (
        "Pump leaks.",
        ("Dr. Li checked the seal.",),
        "Mr. Wang Wei replaced it.",
    )


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("seen by Mr. Wang\nAnswer 1: fixed", "seen by Mr. [NAME]\nAnswer 1: fixed"),
        ("seen by Mr. Wang\nWei", "seen by Mr. [NAME]"),
    ],
)
def test_a_name_ends_before_the_label_of_the_next_line(text: str, masked: str):
    assert Masker("en").paragraph(Unit("n.txt", "#1", text)).original == masked


@pytest.mark.parametrize("characters", range(1, 12))
def test_a_placeholder_is_never_cut_in_two(characters: int):
    left = shorten_prompt(Draft(Unit("i.jsonl", "#1"), "instruction", prompt="ab[NAME]cd"), characters).prompt
    assert left == "ab[NAME]cd"[: 2 if 2 < characters < 8 else characters]
