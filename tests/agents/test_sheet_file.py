"""The task sheet as a file: what people may change comes back as they wrote it, all else is refused by its line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.sheet_file import BY_PERSON, of_people, read_sheet, scalar, stale, to_yaml, with_numbers
from agents.task_sheet import checked, sheet_of
from specs.canonical import canonical_bytes
from specs.errors import SpecError
from specs.project import Project
from specs.proposals import Expectation, TaskSheet
from specs.yaml_tree import read_yaml
from tests.agents.proposer_cases import context, project, write_model


@pytest.fixture(params=["en", "zh"])
def drafted(request, tmp_path) -> tuple[TaskSheet, Project]:
    """A sheet with a number for everything that rules can say, in one language."""
    spec = project(language=request.param, budget={"hours": 12})
    model = write_model(tmp_path / "m", 135_000_000)
    survey = {"rows": 460, "distinct": 440, "complete": True, "mean_tokens": 120.5, "longest_tokens": 250}
    known = context("data", spec, base_model=model, survey=survey)
    return sheet_of(known), spec


def expected(sheet: TaskSheet, stage: str, metric: str) -> Expectation:
    (found,) = [e for s in sheet.stages if s.name == stage for e in s.expected if e.metric == metric]
    return found


def test_an_unchanged_file_is_the_draft(drafted):
    sheet, spec = drafted
    found = read_sheet(to_yaml(sheet, spec), sheet, spec)
    assert of_people(found) == {}
    assert stale(found, sheet) == []
    assert with_numbers(sheet, found) == sheet


def test_the_first_gate_can_expect_hours_and_steps_before_the_data_ran(drafted):
    sheet, _ = drafted
    assert expected(sheet, "train", "training_hours").value > 0
    assert expected(sheet, "train", "steps_taken").value > 0
    assert expected(sheet, "data", "rows_total").value == 460


def test_a_changed_number_is_a_persons_and_keeps_what_the_rules_said(drafted):
    sheet, spec = drafted
    was = expected(sheet, "data", "samples_train").value
    line = f'value: {int(was)}, unit: "samples"'
    text = to_yaml(sheet, spec).replace(line, 'value: 77, unit: "samples"', 1)
    found = read_sheet(text, sheet, spec)
    assert of_people(found) == {("data", "samples_train"): 77}
    mine = expected(with_numbers(sheet, found), "data", "samples_train")
    assert (mine.value, mine.by_rule, mine.set_by) == (77, was, BY_PERSON)
    assert expected(with_numbers(sheet, found, all_of_file=False), "data", "samples_train") == mine
    again = to_yaml(sheet, spec, of_people(found))
    assert of_people(read_sheet(again, sheet, spec)) == of_people(found)


def test_a_persons_time_has_no_interval_of_the_rules_and_is_never_negative(drafted):
    sheet, spec = drafted
    rule = expected(sheet, "train", "stage_seconds")
    assert rule.low is not None
    text = to_yaml(sheet, spec)
    entry = f'"stage_seconds", value: {scalar(int(rule.value) if rule.value.is_integer() else rule.value)},'
    found = read_sheet(text.replace(entry, '"stage_seconds", value: 4000,', 1), sheet, spec)
    mine = expected(with_numbers(sheet, found), "train", "stage_seconds")
    assert (mine.value, mine.low, mine.high, mine.by_rule) == (4000, None, None, rule.value)
    with pytest.raises(SpecError) as refused:
        read_sheet(text.replace(entry, '"stage_seconds", value: -1,', 1), sheet, spec)
    assert [p.rule for p in refused.value.problems] == ["cannot be below 0"]


@pytest.mark.parametrize(("times", "named"), [(1.1, []), (0.85, []), (1.6, ["train.training_hours"])])
def test_a_time_that_moves_with_what_runs_on_the_machine_makes_no_sheet_stale_until_it_is_far_off(
    drafted, times, named
):
    sheet, spec = drafted
    found = read_sheet(to_yaml(sheet, spec), sheet, spec)
    now = sheet.model_dump()
    for e in (e for stage in now["stages"] for e in stage["expected"] if e["metric"] == "training_hours"):
        e["value"] *= times
    assert stale(found, TaskSheet.model_validate(now)) == named


def test_budgets_and_sentences_may_be_changed(drafted):
    sheet, spec = drafted
    text = to_yaml(sheet, spec).replace("budget_hours: null", "budget_hours: 2.5", 1)
    text = text.replace(f'on_failure: "{sheet.stages[0].on_failure}"', "on_failure: call Mei", 1)
    first = with_numbers(sheet, read_sheet(text, sheet, spec)).stages[0]
    assert (first.budget_hours, first.on_failure) == (2.5, "call Mei")


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ('op: "=="', 'op: "<="', "stages[0].criteria"),
        ('signed_by: ["me"]', 'signed_by: ["you"]', "stages[0].signed_by"),
        ('inputs: ["raw/w.csv"]', 'inputs: ["raw/x.csv"]', "stages[0].inputs"),
        ("goal: ", "goal: other #", "goal"),
        ('name: "data"', 'name: "date"', "stages[0].name"),
        ("value: 460", "value: many", "stages[0].expected[0].value"),
        ("value: 460", "value: .nan", "stages[0].expected[0].value"),
        ('metric: "rows_total"', 'metric: "rows_totle"', "stages[0].expected[0].metric"),
        ('unit: "rows"', 'unit: "samples"', "stages[0].expected[0].unit"),
        ("budget_hours: null", "budget_hours: 99", "stages[0].budget_hours"),
        ("budget_hours: null", "budget_hours: -1", "stages[0].budget_hours"),
        ("budget_hours: null", "budget: 1", "stages[0].budget"),
        ("version: 1", "version: 7", "version"),
    ],
)
def test_what_is_not_to_be_changed_here_is_refused_by_its_line(drafted, old, new, path):
    sheet, spec = drafted
    text = to_yaml(sheet, spec)
    assert old in text
    changed = text.replace(old, new, 1)
    with pytest.raises(SpecError) as refused:
        read_sheet(changed, sheet, spec)
    problems = {p.path: p for p in refused.value.problems}
    assert path in problems
    line = problems[path].line
    assert line is not None
    before, after = text.splitlines(), changed.splitlines()
    (differs,) = [n for n, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b]
    assert line <= differs <= line + 40 if path.endswith("criteria") else line == differs
    assert all(p.way_out for p in refused.value.problems)


@pytest.mark.parametrize(
    "text", ["", "[]", "stages: 3", "version: 1\nstages: [3, {}]", "a: [", "stages: [{name: data}]"]
)
def test_a_file_that_is_no_sheet_is_refused(drafted, text):
    sheet, spec = drafted
    with pytest.raises(SpecError):
        read_sheet(text, sheet, spec)


def test_numbers_that_the_rules_would_draft_otherwise_now_are_named(drafted):
    sheet, spec = drafted
    found = read_sheet(to_yaml(sheet, spec), sheet, spec)
    data, *rest = sheet.stages
    moved = [e.model_copy(update={"value": 999}) if e.metric == "rows_total" else e for e in data.expected]
    now = sheet.model_copy(update={"stages": [data.model_copy(update={"expected": moved}), *rest]})
    assert stale(found, now) == ["data.rows_total"]
    (finding,) = [f for f in checked(now, context("data", spec), stale=stale(found, now)).findings if "stale" in f.rule]
    assert "data.rows_total" in finding.text
    assert not finding.blocking
    assert expected(with_numbers(now, found), "data", "rows_total").value == 460
    assert expected(with_numbers(now, found, all_of_file=False), "data", "rows_total").value == 999


@given(st.one_of(st.text(max_size=20), st.integers(-(10**14), 10**14), st.floats(-1e9, 1e9), st.none(), st.booleans()))
@settings(deadline=None)
def test_any_value_comes_back_as_it_was_written(value):
    assert read_yaml(f"a: [{scalar(value)}]", "t").data == {"a": [value]}


def test_no_text_can_break_the_file(drafted):
    sheet, spec = drafted
    first, *rest = sheet.stages
    odd = 'a: "b"\n# c\u2028- {d}\x85\x00'
    why = [e.model_copy(update={"why": odd}) for e in first.expected]
    changed = first.model_copy(update={"on_failure": odd, "expected": why})
    sheet = TaskSheet(goal=odd, stages=[changed, *rest])
    assert with_numbers(sheet, read_sheet(to_yaml(sheet, spec), sheet, spec)) == sheet


def added(*inputs: str) -> Project:
    reads = {f"input_{letter}": source for letter, source in zip("cab", inputs, strict=True)}
    metrics = {"m": {"unit": "count", "self_reported": True}}
    return project(added_stages={"look": {"inputs": reads, "command": ["echo"], "metrics": metrics}})


def test_a_file_written_from_project_yaml_is_that_of_the_run_whose_spec_is_frozen():
    spec = added("data/buckets.json", "project:raw/words.csv", "data/samples.parquet")
    frozen = Project.model_validate_json(canonical_bytes(spec))
    written = to_yaml(sheet_of(context("data", spec)), spec)
    shown = sheet_of(context("data", frozen))
    assert with_numbers(shown, read_sheet(written, shown, frozen)) == shown
    inputs = next(s.inputs for s in shown.stages if s.name == "look")
    other = written.replace(f'["{inputs[0]}", "{inputs[1]}"', f'["{inputs[1]}", "{inputs[0]}"')
    assert other != written
    read_sheet(other, shown, frozen)


@pytest.mark.parametrize("lowered", ["value: 0.001", None], ids=["lowered", "taken out"])
def test_a_number_written_over_the_rules_opens_no_gate(tmp_path, lowered):
    spec = project(budget={"hours": 0.01})
    survey = {"rows": 460, "distinct": 440, "complete": True, "mean_tokens": 120.5, "longest_tokens": 250}
    known = context("data", spec, base_model=write_model(tmp_path / "m", 135_000_000), survey=survey)
    sheet = sheet_of(known)
    assert "over-budget" in {f.rule for f in sheet.findings if f.blocking}
    lines = to_yaml(sheet, spec).splitlines()
    place = next(n for n, line in enumerate(lines) if '"training_hours"' in line)
    lines[place : place + 1] = [re.sub(r"value: [0-9.]+", lowered, lines[place])] if lowered else []
    found = read_sheet("\n".join(lines), sheet, spec)
    now = checked(with_numbers(sheet, found), known, drafted=sheet)
    assert "over-budget" in {f.rule for f in now.findings if f.blocking}
