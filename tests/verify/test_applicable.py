"""A metric of what a project does not have is told as not applicable and blocks nothing, unless it is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.blocks import to_markdown
from agents.stage_report import stage_document
from flows.audit.integrity import given_by
from specs.criteria import Criterion, Metric, Op, blocked, judge
from specs.metrics import DEFINITIONS, default_criteria
from specs.project import Project
from tasks.verify.applicable import names_fault_types, without_questions
from tests.agents.proposer_cases import data_evidence, project

values = st.none() | st.floats(-10, 10)
ops: st.SearchStrategy[Op] = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])


@given(values, ops, st.floats(-10, 10), st.booleans(), st.booleans(), st.booleans())
def test_only_a_default_of_a_metric_that_does_not_apply_is_no_condition(value, op, bound, blocking, default, applies):
    criterion = Criterion(metric="m", op=op, bound=bound, blocking=blocking, where_applicable=default)
    (verdict,) = judge([criterion], {"m": Metric(value=value, unit="share", reason="why", applies=applies)})
    (plain,) = judge([criterion], {"m": Metric(value=value, unit="share", reason="why")})
    if default and not applies:
        assert (verdict.outcome, verdict.reason, blocked([verdict])) == ("not_applicable", "why", False)
        assert (verdict.value, verdict.passed) == (plain.value, plain.passed)
    else:
        assert verdict == plain
        assert blocked([verdict]) == (blocking and not verdict.passed)


@given(values, ops, st.floats(-10, 10), st.booleans(), st.booleans(), st.booleans())
def test_an_audit_finds_a_verdict_that_says_falsely_that_it_does_not_apply(
    value, op, bound, blocking, default, applies
):
    metrics = {"m": Metric(value=value, unit="share", applies=applies)}
    criterion = Criterion(metric="m", op=op, bound=bound, blocking=blocking, where_applicable=default)
    (recorded,) = judge([criterion], metrics)
    assert judge([given_by(recorded)], metrics) == [recorded]
    if recorded.applies and applies:
        forged = recorded.model_copy(update={"applies": False, "blocking": False})
        assert judge([given_by(forged)], metrics)[0].applies


def test_a_metric_that_is_missing_is_no_metric_that_does_not_apply():
    for criterion in (c for stage in ("data", "dry_run", "evaluate") for c in default_criteria(stage)):
        (verdict,) = judge([criterion], {})
        assert verdict.outcome in ("failed", "warning")


def test_no_count_of_faults_may_be_without_application():
    needing = {d.name: d for d in DEFINITIONS if d.needs}
    assert {d.op for d in needing.values()} <= {"<", "<=", ">", ">=", None}
    assert {"fault_type_coverage", "pairing_gain", "pairing_certainty", "ended_share"} <= needing.keys()


@pytest.mark.parametrize(
    ("more", "stands"),
    [
        ({}, True),
        ({"objective": {"metric": "fault_type_coverage", "at_least": 0.3}}, False),
        ({"acceptance": {"evaluate": [{"metric": "fault_type_coverage", "op": ">=", "bound": 0.3}]}}, False),
        ({"rehearsal": 0.1}, True),
    ],
)
def test_what_project_yaml_names_counts_whatever_the_data_is(more: dict[str, Any], stands: bool):
    found = [c for c in project(**more).criteria("evaluate") if c.metric == "fault_type_coverage"]
    assert [c.where_applicable for c in found] == [stands]


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ({"kind": "instructions", "path": "c.jsonl"}, False),
        ({"kind": "manuals", "path": "m.pdf"}, False),
        ({"kind": "work_orders", "path": "w.csv", "columns": {"phenomenon": "P", "repair": "R"}}, False),
        (
            {
                "kind": "work_orders",
                "path": "w.csv",
                "columns": {"phenomenon": "P", "repair": "R", "fault_type": "C"},
            },
            True,
        ),
        (
            {"kind": "fault_codes", "path": "f.csv", "columns": {"fault_type": "Code", "meaning": "M"}},
            True,
        ),
    ],
    ids=["instructions", "manuals", "orders without", "orders with", "codes"],
)
def test_a_source_that_maps_or_names_fault_types_makes_their_absence_a_loss(source: dict[str, Any], named: bool):
    spec = Project.model_validate({"project": "p", "base_model": "m", "sources": [source]})
    assert names_fault_types(spec.model_dump(mode="json")) == named


def test_no_samples_at_all_are_not_samples_without_questions():
    assert not without_questions([])
    assert without_questions([{"prompt": ""}, {"prompt": None}])
    assert not without_questions([{"prompt": ""}, {"prompt": "why?"}])


@pytest.mark.parametrize(
    ("language", "said", "row", "why"),
    [
        (
            "en",
            "All criteria passed. Not applicable: samples of the smallest fault type.",
            "– not applicable",
            "no sample has",
        ),
        ("zh", "全部准则通过。不适用：最小故障类样本数。", "– 不适用", "没有样本带故障类型"),
    ],
)
def test_a_report_says_what_does_not_apply_and_why(tmp_path, language, said, row, why):
    lacking = Metric(value=None, unit="samples", reason="no sample has a fault type", applies=False)
    criteria = [c for c in default_criteria("data") if c.metric in ("smallest_fault_type", "samples_train")]
    metrics = {"samples_train": Metric(value=400, unit="samples"), "smallest_fault_type": lacking}
    evidence = data_evidence().model_copy(update={"metrics": metrics, "verdicts": judge(criteria, metrics)})
    shown = to_markdown(stage_document(tmp_path, evidence, [], project(language=language)))
    assert said in shown
    assert row in shown
    assert why in shown
