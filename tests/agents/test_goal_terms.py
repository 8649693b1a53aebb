"""What a goal promises is found in the sources by any of its words, and nothing else is asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.goal_terms import goal_terms, groups, pattern
from agents.task_sheet import sheet_of
from tests.agents.test_completeness import COMPLETE, VARIANTS, context, merged


def covered(goal: str, text: str) -> set[str]:
    """The words of a goal that a text has."""
    return {word for word, words in goal_terms(goal).items() if pattern(words).search(text)}


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_the_goals_of_complete_sheets_ask_for_nothing_that_is_not_named(name):
    assert goal_terms(merged(COMPLETE, VARIANTS[name])["goal"]) == {}


@pytest.mark.parametrize(
    ("goal", "text"),
    [
        ("diagnose overheating", "The spindle motor runs hot after an hour"),
        ("diagnose overheating", "主轴电机过热"),
        ("诊断主轴过热", "spindle temperature alarm"),
        ("诊断异响", "开机后有噪音"),
        ("find leaks in hydraulics", "液压站漏油"),
        ("bearing wear", "replaced the worn bearings"),
        ("alarm AL12", "AL-12 came up again"),
        ("alarm AL-012", "AL012"),
    ],
)
def test_a_fault_is_covered_by_any_word_for_it_in_either_language(goal, text):
    assert covered(goal, text) == set(goal_terms(goal)) != set()


@pytest.mark.parametrize(
    ("goal", "text"),
    [
        ("diagnose boiler leaks", "a leak at the chuck"),
        ("alarm AL-12", "AL-120"),
        ("诊断锅炉故障", "主轴过热"),
        ("diagnose beltless drives: belt", "conveyed by a bolt"),
    ],
)
def test_a_word_inside_another_word_covers_nothing(goal, text):
    assert covered(goal, text) != set(goal_terms(goal))


@pytest.mark.parametrize(
    "goal",
    [
        "write answers as ISO 9001 and DIN 8580 ask for",
        "for the machines of hall 2, from fault to repair, in 2026",
        "给出检查步骤与维修方案，限二号车间设备",
    ],
)
def test_norms_years_and_plain_words_are_no_faults(goal):
    assert goal_terms(goal) == {}


def test_no_word_stands_for_two_faults():
    words = [word for group in groups() for word in group]
    assert len(set(words)) == len(words)


@given(st.sampled_from([word for group in groups() for word in group]))
def test_every_word_of_the_list_is_found_in_a_goal_and_covers_itself(word):
    terms = goal_terms(f"（{word}）")
    assert terms
    assert covered(f"（{word}）", word)


def test_what_no_source_has_is_a_blocking_finding_with_the_word(tmp_path):
    known = context(tmp_path, COMPLETE).model_copy(update={"survey": {"uncovered": ["boiler"]}})
    (finding,) = sheet_of(known).findings
    assert (finding.rule, finding.blocking) == ("goal-uncovered", True)
    assert "boiler" in finding.text
    assert "boiler" in finding.sentence
