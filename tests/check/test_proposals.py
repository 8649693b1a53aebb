"""`gatewright check` proposes a column mapping from the file, shows rows as read, and warns of what cannot pass."""

from __future__ import annotations

import json
import re
from pathlib import Path

import openpyxl
import pytest

from specs.errors import InputError, SpecError
from specs.loading import load_project, parse_project
from tasks.check import CheckReport, check_project, with_proposals
from tasks.memory.devices import cpu_device
from tests.support.cli import called

HEAD = "project: p\nlanguage: {language}\nbase_model: m\n{more}sources:\n"
CHINESE = ["工单号,设备型号,故障现象,检查步骤,维修措施,故障代码", "1,VMC-850,主轴有异响,查皮带,换皮带,0042"]
ENGLISH = ["WO No,Machine,Symptom,Action taken", "1,VMC-850,spindle is loud,replaced the belt"]


def write(folder: Path, sources: str, language: str = "en", more: str = "") -> Path:
    (folder / "project.yaml").write_text(HEAD.format(language=language, more=more) + sources, encoding="utf-8")
    return folder


def table(folder: Path, lines: list[str], rows: int = 7) -> None:
    (folder / "a.csv").write_text("\n".join([lines[0], *[lines[1]] * rows]), encoding="utf-8")


def proposed(folder: Path) -> str:
    """The way out of the first problem, however it is found."""
    try:
        loaded = load_project(folder)
    except SpecError as error:
        return with_proposals(error, folder).problems[0].way_out
    return check_project(loaded, with_model=False).problems[0].way_out


def report(folder: Path) -> CheckReport:
    return check_project(load_project(folder), with_model=False)


@pytest.mark.parametrize(("lines", "language"), [(CHINESE, "zh"), (ENGLISH, "en")])
@pytest.mark.parametrize("written", ["", "columns: {repair: Repaired}", "columns: {phenomenon: P, repair: R}"])
def test_a_mapping_that_is_missing_or_wrong_is_proposed_and_can_be_pasted(
    tmp_path: Path, lines: list[str], language: str, written: str
):
    table(tmp_path, lines)
    source = "  - kind: work_orders\n    path: a.csv\n"
    write(tmp_path, f"{source}    {written}\n", language)
    found = re.search(r"columns: \{.*\}", proposed(tmp_path).partition("\n")[2])
    assert found
    write(tmp_path, f"{source}    {found.group()}\n", language)
    fixed = report(tmp_path)
    assert fixed.problems == []
    assert len(fixed.previews[0]) == 5
    assert fixed.previews[0][0]["repair"] == lines[1].split(",")[4 if language == "zh" else 3]


def test_the_proposal_shows_rows_and_says_which_columns_it_does_not_find(tmp_path: Path):
    table(tmp_path, ["Date,Asset,OriginalShorttext,PMType", "2004-07-01,A,BUCKET WON'T OPEN,PM01"])
    write(tmp_path, "  - kind: work_orders\n    path: a.csv\n")
    text = proposed(tmp_path)
    assert 'phenomenon: "OriginalShorttext"' in text
    assert "row 1: device_model: A | phenomenon: BUCKET WON'T OPEN" in text
    assert 'no column is called like repair; the columns are "Date", "Asset"' in text


def test_the_header_is_found_under_titles_and_in_the_right_sheet(tmp_path: Path):
    book = openpyxl.Workbook()
    book.active.append(["notes of the planner", "more"])
    sheet = book.create_sheet("Alarms")
    for row in [["Alarm list"], [], ["报警号", "报警内容", "处理方法"], ["0042", "伺服过载", "复位"]]:
        sheet.append(row)
    book.save(tmp_path / "a.xlsx")
    write(tmp_path, "  - kind: fault_codes\n    path: a.xlsx\n", "zh")
    text = proposed(tmp_path)
    assert 'columns: {fault_type: "报警号", meaning: "报警内容", remedy: "处理方法"}' in text
    assert "row 1: fault_type: 0042 | meaning: 伺服过载 | remedy: 复位" in text


def test_nested_json_in_two_languages_is_proposed_in_that_of_the_project(tmp_path: Path):
    record = {
        "id": 16,
        "en": {"description": "x y", "solution": "z"},
        "zh_CN": {"description": "轴错", "solution": "查"},
    }
    (tmp_path / "a.json").write_text(json.dumps([record]))
    for language, key in (("zh", "zh_CN"), ("en", "en")):
        write(tmp_path, "  - kind: fault_codes\n    path: a.json\n", language)
        assert f'meaning: "{key}.description", remedy: "{key}.solution"' in proposed(tmp_path)


@pytest.mark.parametrize(
    "source", ["  - kind: work_orders\n", "  - kind: work_orders\n    path: none.csv\n", "  - 7\n"]
)
def test_a_spec_whose_file_cannot_be_read_keeps_its_problems(tmp_path: Path, source: str):
    write(tmp_path, source)
    with pytest.raises(SpecError) as caught:
        parse_project((tmp_path / "project.yaml").read_text())
    assert with_proposals(caught.value, tmp_path).problems == caught.value.problems


MAPPED = '  - {kind: work_orders, path: a.csv, columns: {phenomenon: Symptom, repair: "Action taken"}}\n'


CHATS = "  - {kind: instructions, path: c.jsonl}\n"
LOOSE = "acceptance: {evaluate: [{metric: fault_type_coverage, op: '>=', bound: 0.5, blocking: false}]}\n"


@pytest.mark.parametrize(
    ("sources", "more", "said"),
    [
        (CHATS, "", "does not apply and judges nothing"),
        (CHATS, LOOSE, "and warns below 0.5"),
        (CHATS, LOOSE.replace("false", "true"), "and blocks the release below 0.5"),
        (CHATS + MAPPED, "", None),
    ],
)
def test_what_a_criterion_of_fault_types_means_without_any_is_said_before_the_run(
    tmp_path: Path, sources: str, more: str, said: str | None
):
    table(tmp_path, ENGLISH, 70)
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "The belt."}]
    (tmp_path / "c.jsonl").write_text("\n".join([json.dumps({"messages": turns})] * 70))
    text = "".join(check_project(load_project(write(tmp_path, sources, more=more)), with_model=False).notes)
    assert said in text if said else "fault_type_coverage" not in text


@pytest.mark.parametrize(("rows", "warned"), [(30, True), (65, True), (66, False)])
def test_rows_that_can_never_satisfy_the_criteria_are_a_warning(tmp_path: Path, rows: int, warned: bool):
    table(tmp_path, ENGLISH, rows)
    write(tmp_path, MAPPED)
    notes = report(tmp_path).notes
    assert (f"{rows} rows" in "".join(notes)) == warned


def test_loosened_criteria_and_sources_of_unknown_size_are_no_warning(tmp_path: Path):
    table(tmp_path, ENGLISH)
    loose = "[{metric: samples_train, op: '>=', bound: 4}, {metric: samples_eval, op: '>=', bound: 1}]"
    write(tmp_path, MAPPED, more=f"acceptance: {{data: {loose}}}\n")
    assert report(tmp_path).notes == []
    (tmp_path / "n.md").write_text("Replaced the belt of the spindle.")
    write(tmp_path, MAPPED + "  - {kind: notes, path: n.md}\n")
    assert report(tmp_path).notes == []


def test_a_card_that_no_catalog_knows_is_a_problem_with_its_line(tmp_path: Path):
    table(tmp_path, ENGLISH)
    write(tmp_path, MAPPED, more="hardware: {gpu: nonsense}\n")
    [problem] = report(tmp_path).problems
    assert (problem.path, problem.line) == ("hardware.gpu", 4)
    assert "memory_gb" in problem.way_out
    write(tmp_path, MAPPED, more="hardware: {gpu: nonsense, memory_gb: 24}\n")
    assert report(tmp_path).problems == []


def test_more_processes_than_the_cards_that_are_planned_for_are_named(tmp_path: Path):
    more = "hardware: {{gpu: RTX 4090, count: {count}}}\nlauncher: {{processes: 2}}\n"
    table(tmp_path, ENGLISH)
    write(tmp_path, MAPPED, more=more.format(count=1))
    [problem] = report(tmp_path).problems
    assert (problem.path, problem.line) == ("launcher.processes", 5)
    assert "2 training processes need 2 GPUs" in problem.rule
    write(tmp_path, MAPPED, more=more.format(count=2))
    assert report(tmp_path).problems == []


@pytest.mark.parametrize(
    ("path", "said"), [("general", ""), ("nothing", "no such file"), ("a.md", "a.md is a source of this project too")]
)
def test_general_text_must_be_there_and_be_no_source(path: str, said: str, tmp_path: Path):
    paragraphs = "\n\n".join(f"The {n}. day was quiet by the river." for n in range(9))
    (tmp_path / "general").mkdir()
    for name in ("a.md", "general/b.txt"):
        (tmp_path / name).write_text(paragraphs, encoding="utf-8")
    more = f"general_text: {{path: {path}}}\n"
    write(tmp_path, "  - {kind: notes, path: a.md}\n", more=more)
    found = report(tmp_path).problems
    assert [p.path for p in found] == (["general_text.path"] if said else [])
    assert all(said in p.rule and p.line == 4 for p in found)


def test_trials_of_a_rank_need_an_adapter(tmp_path: Path):
    table(tmp_path, ENGLISH)
    write(tmp_path, MAPPED, more="method: full\ndry_run: {trials: {vary: [lr, rank]}}\n")
    with pytest.raises(SpecError) as caught:
        report(tmp_path)
    [problem] = caught.value.problems
    assert (problem.path, problem.line) == ("dry_run.trials.vary", 5)
    assert "no adapter" in problem.rule


@pytest.mark.parametrize(
    ("cards", "visible", "enough"), [(2, None, True), (1, None, False), (4, "0", False), (4, "0,1,-1,2", True)]
)
def test_more_processes_than_this_machine_has_cards_are_refused_with_what_there_is(cards, visible, enough):
    device = cpu_device().model_copy(update={"kind": "cuda", "name": "RTX 4090", "count": cards})
    if enough:
        assert device.require_cards(2, visible) == device
        return
    with pytest.raises(InputError, match=r"2 training processes need 2 GPUs, .* this machine has 1 GPU") as caught:
        device.require_cards(2, visible)
    assert "set launcher.processes to 1 or less" in caught.value.hint
    assert ("CUDA_VISIBLE_DEVICES shows 1 of 4" in caught.value.message) == (visible is not None)


def test_processes_on_a_cpu_share_it():
    device = cpu_device()
    assert device.require_cards(8) == device


def test_qlora_without_bitsandbytes_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table(tmp_path, ENGLISH, 100)
    write(tmp_path, MAPPED, more="method: qlora\n")
    monkeypatch.setattr("tasks.check.find_spec", lambda name: None)
    assert "gatewright[qlora]" in "".join(report(tmp_path).notes)
    monkeypatch.setattr("tasks.check.find_spec", lambda name: name)
    assert report(tmp_path).notes == []


def test_the_command_shows_rows_and_warnings_and_proposes_where_columns_are_missing(tmp_path: Path):
    table(tmp_path, ENGLISH)
    write(tmp_path, MAPPED)
    text = (tmp_path / "project.yaml").read_text().replace("base_model: m", "base_model: some-org/model")
    (tmp_path / "project.yaml").write_text(text)
    said = called("check", tmp_path, cwd=tmp_path)
    assert said.code == 0
    assert "phenomenon: spindle is loud | repair: replaced the belt" in said.out
    assert "7 rows" in said.out
    answer = called("check", tmp_path, "--json", cwd=tmp_path).json
    assert answer["previews"][0]["rows"][0] == {"phenomenon": "spindle is loud", "repair": "replaced the belt"}
    assert any("7 rows" in note for note in answer["notes"])
    (tmp_path / "project.yaml").write_text(text.partition(", columns")[0] + "}\n")
    refused = called("check", tmp_path, cwd=tmp_path)
    assert refused.code == 2
    assert 'columns: {device_model: "Machine", phenomenon: "Symptom", repair: "Action taken"' in refused.err
