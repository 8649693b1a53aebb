"""The guard refuses each kind of fault, for rules, models and people alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.guard import Change, apply_changes, check, guard, memory_problems
from agents.rules import RulesProposer
from flows import decide
from specs.errors import GuardRefused
from specs.limits import limits
from specs.parameters import TrainingConfiguration, leaves, replace
from specs.proposals import MemoryCheck, Proposal
from tests.agents.proposer_cases import DEMO_CAPS, context, memory_of, project

SPEC = project(caps=DEMO_CAPS, stages={"train": {"epochs": {"min": 1, "max": 3}, "seed": 17}})
STRESS = RulesProposer().propose(context("stress_test", SPEC))
DATA = RulesProposer().propose(context("data", SPEC))


def changed(proposal: Proposal, path: str, value: Any) -> Proposal:
    return proposal.model_copy(update={"parameters": replace(proposal.parameters, path, value)})


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("training.lr", -1.0, "training.lr"),
        ("training.lr", "fast", "training.lr"),
        ("training.optimizer", "lion", "training.optimizer"),
        ("training.epochs", 9, "stages.train.epochs"),
        ("training.seed", 18, "fixed"),
        ("training.max_steps", 41, "caps.train.max_steps"),
        ("training.max_steps", None, "unlimited"),
        ("training.max_tokens_per_step", 4096, "caps.train.max_tokens_per_step"),
        ("training.gradient_accumulation", 64, "max_tokens_per_step"),
        ("training.max_length", 4096, "no batch plan"),
        ("training.method", "full", "project.yaml"),
        ("training.lr_warmup_steps", 40, "lr_warmup_steps"),
        ("training.ranks", 2, "launcher.processes"),
        ("training.sharding", "zero2", "no worker trains it yet"),
    ],
)
def test_each_fault_is_refused_by_name(path, value, words):
    problems = check(changed(STRESS, path, value), SPEC)
    assert any(words in problem for problem in problems), problems
    with pytest.raises(GuardRefused, match="refused"):
        guard(changed(STRESS, path, value), SPEC)


def test_unknown_parameters_are_refused():
    smuggled = STRESS.model_copy(update={"parameters": {**STRESS.parameters, "base_model": "other"}})
    assert any("base_model" in p for p in check(smuggled, SPEC))
    smuggled = STRESS.model_copy(update={"stage": "policy"})
    assert any("no stage" in p for p in check(smuggled, SPEC))


def test_parameters_must_be_written_out_in_full():
    short = DATA.model_copy(update={"parameters": {"seed": 17}})
    assert any("in full" in p for p in check(short, SPEC))


def test_the_model_of_the_dry_run_is_not_the_agents_to_choose():
    dry = RulesProposer().propose(context("dry_run", SPEC))
    assert any("model" in p for p in check(changed(dry, "model", "evil/model"), SPEC))


def test_the_over_long_rule_of_the_project_is_not_the_agents_to_change():
    strict = project(over_long="drop_list")
    proposal = RulesProposer().propose(context("data", strict))
    assert proposal.parameters["over_long"] == "drop_list"
    assert any("over_long" in p for p in check(changed(proposal, "over_long", "truncate_prompt"), strict))


def test_training_other_than_measured_is_refused_with_the_difference():
    train = RulesProposer().propose(context("train", SPEC, approved={"stress_test": STRESS}))
    assert check(train, SPEC, approved={"stress_test": STRESS}) == []
    problems = check(changed(train, "training.lr", 1e-5), SPEC, approved={"stress_test": STRESS})
    assert any("training" not in p and "lr" in p and "--stage stress_test" in p for p in problems)
    assert any("no stress test" in p for p in check(train, SPEC))


def test_memory_that_does_not_fit_is_refused_with_both_numbers():
    problems = check(STRESS, SPEC, memory=memory_of(8 * 2**30, 2**30))
    assert any("does not fit" in p and "GiB" in p for p in problems)
    passed = guard(STRESS, SPEC, memory=memory_of(2**20, 2**30))
    assert passed.memory is not None
    assert passed.memory.fits


@pytest.mark.parametrize("usable", [2**30, 8 * 2**30 + 2**28], ids=["too large", "above the share"])
@pytest.mark.parametrize(
    ("micro_batch", "checkpointing", "advised", "not_advised"),
    [
        (4, False, ["lower micro_batch or max_length", "set activation_checkpointing"], []),
        (4, True, ["lower micro_batch or max_length"], ["activation_checkpointing"]),
        (1, False, ["lower max_length", "set activation_checkpointing"], ["micro_batch"]),
        (1, True, ["lower max_length", "a larger device"], ["lower micro_batch", "set activation_checkpointing"]),
    ],
)
def test_only_what_is_left_to_lower_is_advised(usable, micro_batch, checkpointing, advised, not_advised):
    training = TrainingConfiguration(micro_batch=micro_batch, activation_checkpointing=checkpointing)
    account = MemoryCheck(peak_bytes=8 * 2**30, usable_bytes=usable, device="d", method="traced", fits=usable > 2**33)
    [problem] = memory_problems(account, training, 0.9)
    assert all(words in problem for words in advised)
    assert not any(words in problem for words in not_advised)


def test_an_edit_that_the_stress_test_would_block_is_refused_and_what_it_passed_is_trained():
    account = memory_of(95 * 2**20, 100 * 2**20 * STRESS.parameters["training"]["micro_batch"])
    problems = check(STRESS, SPEC, memory=account)
    assert any("95.0%" in p and "blocks above 90%" in p and "micro_batch" in p for p in problems)
    train = RulesProposer().propose(context("train", SPEC, approved={"stress_test": STRESS}))
    assert check(train, SPEC, approved={"stress_test": STRESS}, memory=account) == []


def test_a_host_that_is_too_small_is_named_instead_of_a_device_that_is_large_enough():
    account = memory_of(2**20, 100 * 2**20)
    problems = check(STRESS, SPEC, memory=lambda t: account(t).model_copy(update={"fits": False}))
    assert any("its host has too little memory or disk" in p for p in problems)


def test_memory_is_not_asked_about_configurations_that_are_refused_anyway():
    def account(training):
        raise AssertionError("asked")

    assert check(changed(STRESS, "training.epochs", 9), SPEC, memory=account)


def test_edits_are_attributed_validated_and_change_the_digest():
    edited, _values = decide.edited(STRESS, {"lr": "1e-4", "rank": 8}, "alice", "")
    assert edited.parameters["training"]["lr"] == 1e-4
    assert edited.edited_by == "alice"
    assert edited.sha256 != STRESS.sha256
    assert {r.source for r in edited.reasons if r.parameter in ("training.lr", "training.lora.rank")} == {
        "person:alice"
    }
    assert check(edited, SPEC) == []
    assert STRESS.parameters["training"]["lr"] != 1e-4


@pytest.mark.parametrize(
    ("edits", "words"),
    [({"learning": 1}, "no parameter"), ({"lr": "quick"}, "training.lr"), ({"epochs": "1.5"}, "training.epochs")],
)
def test_bad_edits_are_refused_with_a_hint(edits, words):
    with pytest.raises(GuardRefused, match=words) as caught:
        decide.edited(STRESS, edits, "alice", "")
    assert caught.value.hint


def test_a_misspelt_key_gets_its_nearest():
    with pytest.raises(GuardRefused) as caught:
        decide.edited(STRESS, {"epoch": 2}, "alice", "")
    assert "training.epochs" in caught.value.hint


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_whatever_is_proposed_only_values_inside_the_limits_pass(data):
    """Any value for any bounded parameter: the guard passes exactly when every limit does."""
    low, high = sorted((data.draw(st.integers(1, 50)), data.draw(st.integers(1, 50))))
    spec = project(stages={"train": {"epochs": {"min": low, "max": high}}}, caps={"train": {"epochs": high}})
    base = RulesProposer().propose(context("stress_test", spec))
    epochs = data.draw(st.integers(1, 60))
    refused = check(changed(base, "training.epochs", epochs), spec)
    assert bool(refused) == (not low <= epochs <= high)


def test_every_limit_moves_a_value_to_one_that_it_allows():
    for limit in limits(SPEC, "stress_test"):
        for value in (None, 0, 10**9, 0.5):
            if value is None and limit.high is None:
                continue
            assert limit.broken_by(limit.nearest(value)) == ""


def test_limits_of_train_hold_where_its_configuration_is_chosen():
    paths = {limit.path for limit in limits(SPEC, "stress_test")}
    assert {"training.epochs", "training.max_steps"} <= paths
    assert paths <= set(leaves(STRESS.parameters))


@pytest.mark.parametrize(
    ("key", "meant"),
    [("learning_rate", "training.lr"), ("training.learning_rate", "training.lr"), ("optimiser", "training.optimizer")],
)
def test_a_misspelt_parameter_is_answered_with_the_one_that_is_meant(key: str, meant: str):
    with pytest.raises(GuardRefused) as caught:
        apply_changes(STRESS, [Change(key, "1", "asked for", "person")])
    assert caught.value.hint == f"did you mean {meant}?"


@pytest.mark.parametrize("parameters", [{"times": 9}, {"tims": 2}], ids=["above its limit", "no name of it"])
def test_the_way_out_leads_to_where_an_added_stage_says_what_it_takes(parameters):
    look = {
        "command": ["count"],
        "parameters": {"times": {"value": 2, "max": 3}},
        "metrics": {"m": {"unit": "samples", "self_reported": True}},
    }
    refused = Proposal(stage="look", round=1, parameters=parameters, reasons=[], expected=[], proposer="rules")
    with pytest.raises(GuardRefused) as caught:
        guard(refused, project(added_stages={"look": look}))
    assert next(iter(parameters)) in caught.value.message
    assert "added_stages.look.parameters" in caught.value.hint
