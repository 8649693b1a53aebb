"""A gate shows what was found, what is proposed and why, in the project's language."""

from __future__ import annotations

import re

import pytest

from agents.reporter import gate_page
from agents.rules import RulesProposer
from agents.task_sheet import expected_beside_actual
from specs.metrics import STAGES, default_criteria
from specs.proposals import BaseModelFacts
from tests.agents.proposer_cases import DEMO_CAPS, context, memory_of
from tests.agents.proposer_cases import project as project_of
from tests.reports.report_attempts import evidence, project


def page(gate: str, language: str = "en", finished=None, previous=None, proposal=None, round: int = 1, report=None):
    spec = project_of(language=language, caps=DEMO_CAPS)
    first = RulesProposer().propose(context("data", spec))
    rules = RulesProposer(memory_of(2**28, 2**33))
    proposal = proposal or rules.propose(context(gate, spec))
    rows = expected_beside_actual(first.task_sheet, {finished.stage: finished} if finished else {}, {"data": first})
    return proposal, gate_page(
        gate=gate, round=round, proposal=proposal, previous=previous, finished=finished, expected=rows, spec=spec,
        report=report,
    )  # fmt: skip


def test_what_was_asked_for_stands_beside_its_answer_and_the_difference_to_the_last_round():
    spec = project_of(language="zh", caps=DEMO_CAPS)
    rules = RulesProposer(memory_of(2**28, 2**33))
    before = rules.propose(context("stress_test", spec))
    asked = context("stress_test", spec, round=2, feedback="training.lr=0.0001\n请小心", last_proposal=before)
    _, text = page("stress_test", "zh", proposal=rules.propose(asked), previous=before, round=2)
    (row,) = [line for line in text.splitlines() if "training.lr=0.0001" in line]
    assert "已照办" in row
    assert "未理解" in text
    assert "与上一轮的差异" in text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_parameter_is_shown_with_its_reason_or_as_default(language):
    proposal, text = page("stress_test", language)
    for reason in proposal.reasons:
        assert reason.text in text
        assert f"`{reason.parameter}`" in text
    for name in ("optimizer", "weight_decay", "attention"):
        assert name in text


def test_the_first_gate_shows_the_task_sheet():
    _, text = page("data")
    assert text.count("Criteria that block") == 5
    assert "Goal:" in text
    assert "fault types answered right at least once ≥ 50 % (where it applies)" in text
    assert text.count("(where it applies)") == sum(
        c.where_applicable and c.blocking for s in STAGES for c in default_criteria(s)
    )


@pytest.mark.parametrize(
    ("licence", "language", "said"),
    [
        ("apache-2.0", "en", "revision `abc123`. Licence: `apache-2.0`."),
        ("apache-2.0", "zh", "许可证：`apache-2.0`。"),
        ("unknown", "en", "Licence: not stated by the model; find out"),
        ("unknown", "zh", "许可证：模型未注明"),
        ("x` <b>**", "en", "Licence: ``x` <b>**``."),
    ],
)
def test_the_first_gate_shows_the_revision_and_the_licence_of_the_base_model(licence, language, said):
    proposal = RulesProposer().propose(context("data", project_of(language=language)))
    assert proposal.base_model is None
    facts = BaseModelFacts(revision="abc123", licence=licence)
    _, text = page("data", language, proposal=proposal.model_copy(update={"base_model": facts}))
    assert said in text


def test_evidence_and_report_of_the_finished_stage_are_shown(tmp_path):
    finished = evidence("data", tmp_path, project(), rows_unaccounted=2.0)
    _, text = page("stress_test", finished=finished, report="runs/r/01-data/001/report.html")
    assert "Blocked by: rows without exactly one fate" in text
    assert "runs/r/01-data/001/report.html" in text
    assert "1 table read as gb18030" in text


def test_a_new_round_shows_the_answer_and_what_changed():
    spec = project_of(caps=DEMO_CAPS)
    first = RulesProposer().propose(context("stress_test", spec))
    second = RulesProposer().propose(context("stress_test", spec, round=2, feedback="lr=1e-4", last_proposal=first))
    _, text = page("stress_test", previous=first, proposal=second, round=2)
    assert "Answer to the feedback" in text
    assert "| `training.lr` | `0.0002` | `0.0001` |" in text


def test_memory_and_warnings_are_said():
    proposal, text = page("stress_test")
    assert "Memory: predicted peak" in text
    for warning in proposal.warnings:
        assert warning in text


def test_the_chinese_page_has_chinese_headings():
    _, text = page("train", "zh", proposal=RulesProposer().propose(context("evaluate", project_of(language="zh"))))
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings
    assert all(re.search(r"[一-鿿]", line) for line in headings)


def test_the_release_gate_has_its_own_title():
    assert page("release")[1].startswith("# Gate before release")
