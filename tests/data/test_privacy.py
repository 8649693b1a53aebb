"""Personal data is masked in samples, counted by kind and source, and found again by the verifier where it is left.

Alarm codes, part numbers, serial numbers and parameters are never masked.
"""

from __future__ import annotations

import random
import re
import string
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.base import Language
from specs.criteria import blocked, judge
from specs.metrics import default_criteria
from specs.project import Project
from tasks.data.privacy import Masker, find
from tasks.data.records import Draft, Unit
from tasks.data.wording import render
from tasks.verify.data import metrics
from tasks.verify.personal import FIELDS, in_samples, personal_data
from tests.support.raw_project import HEADERS, code_of, make_project, orders, run_stage, stage_context, write_csv

IN_CHINESE = {
    "联系张师傅13812345678": [("name", "张"), ("phone", "13812345678")],
    "维修员：李明，更换轴承": [("name", "李明")],
    "报修人:王建国 电话 010-62345678": [("name", "王建国"), ("phone", "010-62345678")],
    "身份证11010519491231002X": [("id_number", "11010519491231002X")],
    "旧证130503670401001": [("id_number", "130503670401001")],
    "叉车沪A12345撞了护栏": [("plate", "沪A12345")],
    "送货车粤BD12345（新能源）": [("plate", "粤BD12345")],
    "张工确认后更换": [("name", "张")],
    "操作工李强反映主轴异响": [("name", "李强")],
    "+86 138 1234 5678": [("phone", "+86 138 1234 5678")],
    "电话：62345678": [("phone", "62345678")],
    "厂家热线400-820-8820": [("phone", "400-820-8820")],
    "欧阳经理确认": [("name", "欧阳")],
    "座机0755-86543210转801": [("phone", "0755-86543210转801")],
    "卡号6222021234567890128": [("bank_card", "6222021234567890128")],
    "13812345678/13912345678": [("phone", "13812345678"), ("phone", "13912345678")],
}
IN_ENGLISH = {
    "Mr. Smith reported a noise": [("name", "Smith")],
    "technician John Doe replaced the belt": [("name", "John Doe")],
    "reported by Jane O'Neil on Monday": [("name", "Jane O'Neil")],
    "REPORTED BY JOHN SMITH": [("name", "JOHN SMITH")],
    "Mr. Mohammed called": [("name", "Mohammed")],
    "Engineer: J. Smith": [("name", "J. Smith")],
    "call 555-123-4567 or (212) 555-0187": [("phone", "555-123-4567"), ("phone", "(212) 555-0187")],
    "SSN 123-45-6789": [("id_number", "123-45-6789")],
    "card 4111 1111 1111 1111": [("bank_card", "4111 1111 1111 1111")],
    "write to bob.lee@example.com now": [("email", "bob.lee@example.com")],
    "+1 650 253 0000": [("phone", "+1 650 253 0000")],
    "+49 30 901820": [("phone", "+49 30 901820")],
}
NEVER = """
SV0410 alarm | 报警 700012 | A06B-6114-H103 | parameter No.1815 | part 7654321 | part no. 13812345678 | 料号13812345678
换新A12345轴承 | 更新B12345程序 | 张力过大 | 两张工作台 | 高级工程师确认 | 白班班长 | 每周一班长检查 | 车间主任确认
Operator panel dead | technician Replaced belt | reported by Operator | operator Station 3 | repaired by Siemens
S/N 4111111111111111 | 参数1815改为1000000 | serial 130503670401001 | 60012345678 | 1234567 | 12345678901
A06B-0235-B500#0100 | 读数 150 2000 3000 rpm | 主轴电流 138 1234 5678 | 负责人：车间 | 操作工：白班 | 维修人：无
任何工程师 | 担任班长 | 当时班长不在 | 甲方经理 | 2024-05-06 12:30:00 | 电机编号 11010519491231002X | 192.168.100.101
reported by PLC | checked by hand | fixed by Replacing fuse | 张紧轮更换 | G54 X-123.4567 Y+1234567.89 | 一位师傅
许多工程师 | M98 P9012345 | order 4500123456 | 工单号：13812345678 | contact block replaced | driver: Servo Amplifier
轴承 6205-2RS SKF 6309-2Z/C3 | DSQC 679 | 6ES7 315-2AH14-0AB0 | PO 4500123456789 | 程序O1234567 | 参数No.2020
call John now IS000000-0 | call me now A1234567 | contact K8765432
""".replace("\n", "|")
CODES = [code.strip() for code in NEVER.split("|") if code.strip()]


def kinds(text: str) -> list[tuple[str, str]]:
    return [(f.kind, text[f.start : f.end]) for f in find(text)]


@pytest.mark.parametrize(("text", "expected"), [*IN_CHINESE.items(), *IN_ENGLISH.items()])
def test_personal_data_is_found_whole_and_by_its_kind(text: str, expected: list[tuple[str, str]]):
    assert kinds(text) == expected


@pytest.mark.parametrize("text", CODES)
def test_codes_parts_parameters_and_workshop_words_are_never_taken_for_personal_data(text: str):
    assert kinds(text) == []


part = st.from_regex(
    r"[A-Z]{1,4}[0-9]{2,6}(-[0-9A-Z]{1,6}){0,3}|[A-Z][0-9]{2}[A-Z]-[0-9]{4}-[A-Z][0-9]{3}|[02-9][0-9]{6}|[2-9][0-9]{10}|"
    r"No\.[0-9]{4,5}|[0-9]{4,6}",
    fullmatch=True,
)
frame = st.sampled_from(
    [
        "报警{}出现",
        "更换{}后正常",
        "alarm {} came up",
        "replaced {} and tested",
        "参数{}改回",
        "{}",
        "see {}.",
        "（{}）",
        "code: {}",
    ]
)


@settings(max_examples=30, deadline=None)
@given(part, frame)
def test_a_code_or_part_number_in_a_sentence_stays_as_it_is(code: str, sentence: str):
    assert kinds(sentence.format(code)) == []


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10**9 - 1),
    st.sampled_from("3456789"),
    st.sampled_from(["电话{}", "请打{}。", "call {}", "找王师傅，{}"]),
)
def test_every_mobile_number_is_masked_and_every_digit_of_it(number: int, second: str, sentence: str):
    phone = f"1{second}{number:09d}"
    masked = Masker("zh")._mask(Unit("f", "#1"), "sample", sentence.format(phone))
    assert "[电话]" in masked
    assert not any(c.isdigit() for c in masked)


def identity(rng: random.Random) -> str:
    body = f"{rng.choice(['110105', '320102', '440305'])}{rng.randint(1950, 2005)}{rng.randint(1, 12):02d}"
    body += f"{rng.randint(1, 28):02d}{rng.randint(0, 999):03d}"
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    return body + "10X98765432"[sum(int(c) * w for c, w in zip(body, weights, strict=True)) % 11]


def test_an_identity_number_counts_only_with_its_check_digit():
    rng = random.Random(5)
    for _ in range(50):
        number = identity(rng)
        wrong = number[:-1] + next(c for c in string.digits if c != number[-1])
        assert kinds(f"证件{number}")[0][0] == "id_number"
        assert not [k for k, _ in kinds(f"数据{wrong}") if k == "id_number"]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from([*IN_CHINESE, *IN_ENGLISH, *CODES]), min_size=1, max_size=4),
    st.sampled_from(["，", ". ", "\n"]),
)
def test_masking_twice_changes_nothing_and_the_verifier_finds_nothing_in_masked_text(texts: list[str], glue: str):
    masker = Masker("en")
    once = masker._mask(Unit("f", "#1"), "sample", glue.join(texts))
    assert masker._mask(Unit("f", "#1"), "sample", once) == once
    assert personal_data(once) == []


def test_what_is_allowed_stays_and_everything_else_is_counted_by_source_and_kind():
    masker = Masker("en", ["400-820-8820"])
    masker.draft(Draft(Unit("a.csv", "#1"), "work_order", "M1", "Mr. Smith called 400 820 8820", (), "by 13812345678"))
    masker.draft(Draft(Unit("b.csv", "#1"), "work_order", "M1", "call 400-820-8820", ("see 555-123-4567",), "fine"))
    assert masker.counts() == {"a.csv": {"name": 1, "phone": 1}, "b.csv": {"phone": 1}}


def test_a_number_that_hangs_on_other_personal_data_is_masked_with_it():
    text = Masker("en")._mask(Unit("f", "#1"), "sample", "bob@example.com(410) 570-0577")
    assert text == "[EMAIL][PHONE]"


def test_a_fault_code_is_never_touched_and_a_machine_keeps_its_name():
    draft = Draft(Unit("a", "#1"), "work_order", "Mr. Coffee 沪A12345", "x", (), "y", "13812345678", "Call Mr. Smith")
    masked = Masker("en").draft(draft)
    assert masked.fault_type == "13812345678"
    assert masked.device_model == "Mr. Coffee [PLATE]"
    assert masked.meaning == "Call Mr. [NAME]"


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("machine", ["Mr. Coffee", "王师傅 2号机", "Reported by J. Deere"])
def test_a_machine_with_the_name_of_a_person_is_no_personal_data_but_the_person_is(language: Language, machine: str):
    draft = Draft(Unit("a", "#1"), "work_order", machine, "It is loud", (), "Oiled")
    for phenomenon, count in (("It is loud", 0), ("Mrs. Miller says it is loud", 1), (f"{machine}: it is loud", 1)):
        prompt, answer = render(replace(draft, phenomenon=phenomenon), language)
        sample = {**dict.fromkeys(FIELDS, ""), "device_model": machine, "phenomenon": phenomenon}
        sample |= {"prompt": prompt, "answer": answer, "text": f"<user>{prompt}\n<assistant>{answer}"}
        assert in_samples([sample], ()) == count
        masked = Masker(language).draft(replace(draft, phenomenon=phenomenon))
        prompt, answer = render(masked, language)
        sample |= {"phenomenon": masked.phenomenon, "prompt": prompt, "text": f"<user>{prompt}\n<assistant>{answer}"}
        assert in_samples([sample], ()) == 0


PROBLEM = {"en": ". Reported by Jane Doe, phone 555-123-4567", "zh": "，操作工李强反映，电话13812345678"}
REPAIR = {"en": ", ask Mr. Smith, 13812345678", "zh": "，问张师傅13912345678"}
TEXT = {
    "en": "Mr. Smith wrote to bob@example.com about the grease of the spindle, which was dry",
    "zh": "张师傅的邮箱是bob@example.com，主轴润滑脂已检查",
}
SECRETS = ("Jane", "Smith", "555-123", "13812345678", "13912345678", "李强", "张师傅", "bob@")


@dataclass(frozen=True)
class Planted:
    """A project with personal data in a work order, a note and a manual, after the data stage."""

    folder: Path
    spec: Project
    out: Path
    notes: list[str]
    model: Path

    def table(self, name: str) -> list[dict]:
        return pq.read_table(self.out / "artifacts" / f"{name}.parquet").to_pylist()

    def measured(self, **changes: object) -> dict:
        context = stage_context(self.folder, self.spec, self.model, self.out).model_dump(mode="json")
        context["spec"] |= changes
        return metrics(self.out, {}, context)


@pytest.fixture(scope="module", params=["en", "zh"])
def planted(request: pytest.FixtureRequest, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    language = request.param
    folder = tmp_path_factory.mktemp(f"private-{language}")
    spec = make_project(folder, language)
    rows = orders(language)
    rows[0][1] += PROBLEM[language]
    rows[1][3] += REPAIR[language]
    quarantined = ["VMC-850", "Mr. Smith, 13812345678", "", "-", code_of(1)]
    write_csv(folder / "raw" / "orders.csv", list(HEADERS[language].values()), [*rows, quarantined, rows[0]])
    for name in ("notes.md", "manual.md"):
        path = folder / "raw" / name
        path.write_text(f"{path.read_text('utf-8')}\n\n{TEXT[language]}.\n", encoding="utf-8")
    sources = [s.model_dump(mode="json") for s in spec.sources]
    next(s for s in sources if s["kind"] == "work_orders")["path"] = "raw/orders.csv"
    spec = Project.model_validate({**spec.model_dump(mode="json", exclude={"stages"}), "sources": sources})
    result = run_stage(folder, spec, tiny_model, folder / "out")
    return Planted(folder, spec, folder / "out", result.notes, tiny_model)


def test_no_artifact_but_the_quarantine_holds_personal_data(planted: Planted):
    for path in sorted((planted.out / "artifacts").iterdir()):
        text = str(planted.table(path.stem)) if path.suffix == ".parquet" else path.read_text("utf-8")
        assert path.stem == "quarantine" or not [s for s in SECRETS if s in text], path.name
    assert "13812345678" in str(planted.table("quarantine"))


def test_a_run_with_masked_data_passes_every_criterion_and_counts_what_it_masked(planted: Planted):
    found = planted.measured()
    verdicts = judge(default_criteria("data"), found)
    assert not blocked(verdicts), [v for v in verdicts if not v.passed]
    assert found["personal_data_left"].value == 0
    items = sum(m["items"] for m in planted.table("masked") if m["place"] == "sample")
    assert found["personal_data_masked"].value == items == 8
    [in_samples, elsewhere] = [note for note in planted.notes if "personal data masked" in note or "屏蔽" in note]
    assert sum(map(int, re.findall(r"\d+", in_samples))) == items
    left_out = sum(m["items"] for m in planted.table("masked") if m["place"] == "left_out")
    assert sum(map(int, re.findall(r"\d+", elsewhere))) == left_out == 2  # the copy of the first order


def test_personal_data_that_is_left_blocks_the_stage(planted: Planted, tmp_path: Path):
    spec = planted.spec.model_copy(update={"personal_data": "keep"})
    run_stage(planted.folder, spec, planted.model, tmp_path / "out")
    kept = Planted(planted.folder, spec, tmp_path / "out", [], planted.model)
    assert kept.measured()["personal_data_kept"].value >= 4
    assert kept.measured()["personal_data_left"].value == 0
    as_if_masked = kept.measured(personal_data="mask")
    assert as_if_masked["personal_data_left"].value >= 4
    assert blocked(judge(default_criteria("data"), as_if_masked))


def test_characters_that_masking_does_not_explain_are_still_found(planted: Planted):
    path = planted.out / "artifacts" / "masked.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    try:
        pq.write_table(
            pa.Table.from_pylist([r | {"characters": r["characters"] + 1} for r in rows], table.schema), path
        )
        assert planted.measured()["characters_unexplained"].value > 0
    finally:
        pq.write_table(table, path)


@pytest.mark.parametrize(
    "text",
    [
        "电流 400-500-6000 mA",
        "fuse 250-500-1000",
        "tool life 800-900-1000",
        "加工 13800138000 件",
        "计数器读数13800138000",
        "count 4111111111111111 pulses",
    ],
)
def test_readings_are_no_phone_and_no_card_for_the_stage_and_for_its_verifier(text):
    assert not find(text)
    assert not personal_data(text)


@pytest.mark.parametrize(
    "text",
    [
        "call us 555-123-4567 a technician comes",
        "服务热线400-820-8820转1",
        "１３８００１３８０００",
        "138—0013—8000",
        "010－62345678",
        "13812345678次日到场",
    ],
)
def test_numbers_are_found_in_full_width_with_long_dashes_and_before_what_is_no_unit(text):
    assert [f.kind for f in find(text)] == ["phone"]


@pytest.mark.parametrize("text", ["Reported by: J. Smith", "Completed by: Ann Lee", "报修人 张伟 到场", "维修员 李明"])
def test_names_in_the_cells_of_a_form_are_found(text):
    assert [f.kind for f in find(text)] == ["name"]
