"""The task sheet names every stage with numbers, and numbers come beside what was measured."""

from __future__ import annotations

import pytest

from agents.gate_page import sheet_html, sheet_page
from agents.rules import RulesProposer
from agents.task_sheet import expected_beside_actual, sheet_of
from specs.criteria import Metric
from specs.metrics import STAGES, default_criteria
from specs.yaml_tree import read_yaml
from tests.agents.proposer_cases import DEMO_CAPS, context, data_evidence, project, write_model

SUMMARIES = [{"kind": "work_orders", "rows": 460, "path": "raw/w.csv"}]


def test_every_stage_has_inputs_criteria_signers_and_a_way_out():
    sheet = sheet_of(context("data", source_summaries=SUMMARIES))
    assert [stage.name for stage in sheet.stages] == list(STAGES)
    for stage in sheet.stages:
        assert stage.inputs
        assert stage.criteria == default_criteria(stage.name)
        assert stage.signed_by == ["me"]
        assert stage.on_failure


def test_the_spec_shapes_criteria_goal_and_budget():
    spec = project(
        objective={"metric": "fault_type_coverage", "at_least": 0.7},
        budget={"hours": 2},
        acceptance={"evaluate": [{"metric": "ended_share", "op": ">=", "bound": 0.9}]},
        policy={"approvers": [{"id": "bo"}, {"id": "al"}]},
    )
    sheet = sheet_of(context("data", spec, source_summaries=SUMMARIES), goal="diagnose spindles")
    evaluate = sheet.stages[-1]
    bounds = {c.metric: c.bound for c in evaluate.criteria}
    assert sheet.goal == "diagnose spindles"
    assert (bounds["fault_type_coverage"], bounds["ended_share"]) == (0.7, 0.9)
    assert sheet.stages[3].budget_hours == 2
    assert evaluate.signed_by == ["al", "bo"]


def test_the_sheet_of_the_first_gate_counts_rows_steps_and_hours(tmp_path):
    model = write_model(tmp_path / "m", 135_000_000)
    sheet = RulesProposer().propose(context("data", base_model=model)).task_sheet
    assert sheet is not None
    expected = {(s.name, e.metric): e.value for s in sheet.stages for e in s.expected}
    assert expected["data", "rows_total"] == 460
    assert expected["dry_run", "steps_taken"] == 30
    assert expected["train", "steps_taken"] == 40
    assert expected["data", "samples_train"] + expected["data", "samples_eval"] < 460


def test_after_a_rework_the_sheet_expects_what_is_proposed_now(tmp_path):
    rows = [{"kind": "work_orders", "rows": 405}]
    first = RulesProposer().propose(context("data", source_summaries=rows))
    asked = {"round": 2, "feedback": "eval_share=0.3", "last_proposal": first}
    now = RulesProposer().propose(context("data", source_summaries=rows, **asked))
    assert now.parameters["eval_share"] == 0.3
    assert now.task_sheet is not None
    sheet = {(s.name, e.metric): e.value for s in now.task_sheet.stages for e in s.expected}
    held_out = {e.metric: e.value for e in now.expected}["samples_eval"]
    assert held_out == 103  # 0.3 of the 344 rows that usually stay, rounded in one way everywhere
    assert sheet["data", "samples_eval"] == sheet["evaluate", "samples_evaluated"] == held_out


def test_only_the_first_gate_carries_the_sheet():
    assert RulesProposer().propose(context("stress_test")).task_sheet is None


def test_actual_numbers_come_beside_expected_ones():
    proposal = RulesProposer().propose(context("data"))
    assert proposal.task_sheet is not None
    rows = expected_beside_actual(proposal.task_sheet, {"data": data_evidence(train=300)})
    by_metric = {(r.stage, r.metric): r for r in rows}
    trained = by_metric["data", "samples_train"]
    assert trained.actual == 300
    assert trained.difference == (300 - trained.expected) / trained.expected
    assert by_metric["train", "steps_taken"].actual is None
    assert by_metric["train", "steps_taken"].difference is None


def test_a_later_proposal_of_a_stage_replaces_the_first_guess():
    sheet = RulesProposer().propose(context("data")).task_sheet
    assert sheet is not None
    later = RulesProposer().propose(context("stress_test"))
    stress = data_evidence().model_copy(
        update={"stage": "stress_test", "metrics": {"peak_bytes": Metric(value=5, unit="bytes")}}
    )
    expected = later.model_copy(update={"expected": [later_expected("peak_bytes", 4, "bytes")]})
    rows = expected_beside_actual(sheet, {"stress_test": stress}, {"stress_test": expected})
    assert [(r.expected, r.actual) for r in rows if r.stage == "stress_test"] == [(4, 5)]


def later_expected(metric: str, value: float, unit: str):
    from specs.proposals import Expectation

    return Expectation(metric=metric, value=value, unit=unit)


def test_the_sheet_reads_in_both_languages():
    for language, word in (("en", "Signed by"), ("zh", "签字人")):
        spec = project(language=language, caps=DEMO_CAPS)
        page = sheet_page(sheet_of(context("data", spec, source_summaries=SUMMARIES)), spec)
        assert page.count(word) == len(STAGES)
        assert "raw/w.csv" in page


def test_no_earlier_run_corrects_what_project_yaml_states():
    metrics = {"m": {"unit": "samples", "self_reported": True}}
    look = {"command": ["echo"], "metrics": metrics, "expected": {"m": 50}}
    spec = project(objective={"metric": "fault_type_coverage", "at_least": 0.6}, added_stages={"look": look})
    history = [
        {"stage": stage, "metric": metric, "by_rule": was, "actual": was / 5, "known": []}
        for stage, metric, was in (("look", "m", 50), ("evaluate", "fault_type_coverage", 0.6))
    ]
    sheet = sheet_of(context("data", spec, history=history))
    found = {e.metric: e.value for s in sheet.stages for e in s.expected}
    assert (found["m"], found["fault_type_coverage"]) == (50, 0.6)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_a_stage_runs_is_read_as_it_is_written_on_every_page(language):
    look = {"command": ["sieve"], "metrics": {"m": {"unit": "samples", "self_reported": True}}}
    spec = project(language=language, added_stages={"look": look})
    sheet = sheet_of(context("data", spec))
    for page in (sheet_page(sheet, spec), sheet_html(sheet, spec)):
        (line,) = [line for line in page.replace("<li>", "\n").splitlines() if "sieve" in line]
        assert "`" not in line


def test_the_sentence_for_an_added_stage_without_a_criterion_is_one_that_project_yaml_takes():
    look = {"command": ["count"], "metrics": {"m": {"unit": "samples", "self_reported": True}}}
    sheet = sheet_of(context("data", project(added_stages={"look": look})))
    (found,) = [f for f in sheet.findings if f.rule == "criteria-missing"]
    written = read_yaml(found.sentence.replace("metric: ...", "metric: m").replace("bound: ...", "bound: 1"), "f").data
    project(added_stages={"look": {**look, **written["added_stages"]["look"]}})
