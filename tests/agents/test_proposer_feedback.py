"""Feedback is acted on where rules can, and answered in every part."""

from __future__ import annotations

import pytest

from agents.feedback import read_feedback
from agents.rules import RulesProposer
from specs.parameters import leaves
from tests.agents.proposer_cases import context, project

BASE = RulesProposer().propose(context("stress_test"))


def ask(feedback: str, **more):
    return RulesProposer().propose(context("stress_test", round=2, feedback=feedback, last_proposal=BASE, **more))


@pytest.mark.parametrize(
    ("feedback", "path", "value"),
    [
        ("lr=1e-4", "training.lr", 1e-4),
        ("please set the learning rate to 3e-4.", "training.lr", 3e-4),
        ("lower the learning rate", "training.lr", 1e-4),
        ("the learning rate is too low", "training.lr", 4e-4),
        ("学习率降到1e-4", "training.lr", 1e-4),
        ("学习率太大", "training.lr", 1e-4),
        ("rank 8", "training.lora.rank", 8),
        ("a larger rank", "training.lora.rank", 32),
        ("activation_checkpointing=true", "training.activation_checkpointing", True),
        ("lr_schedule=linear", "training.lr_schedule", "linear"),
        ("换一个种子 23", "training.seed", 23),
    ],
)
def test_requests_are_read_and_acted_on(feedback, path, value):
    proposal = ask(feedback)
    assert leaves(proposal.parameters)[path] == pytest.approx(value) if isinstance(value, float) else value
    assert leaves(proposal.parameters)[path] == value
    assert path in proposal.answers_feedback
    assert any(r.parameter == path and r.source == "feedback" for r in proposal.reasons)


def test_what_no_rule_understands_is_said_and_the_way_out_named():
    proposal = ask("make it friendlier, and lr=1e-4")
    assert "make it friendlier" in proposal.answers_feedback
    assert "--set" in proposal.answers_feedback
    assert proposal.parameters["training"]["lr"] == 1e-4


def test_requests_outside_the_limits_stop_at_the_limit_and_say_so():
    spec = project(stages={"train": {"lr": {"min": 1e-4, "max": 3e-4}}})
    proposal = ask("lr=1e-2", spec=spec)
    assert proposal.parameters["training"]["lr"] == 3e-4
    assert "stages.train.lr" in proposal.answers_feedback


def test_requests_that_the_guard_would_refuse_are_not_taken():
    proposal = ask("micro_batch=64")
    assert proposal.parameters["training"]["micro_batch"] == BASE.parameters["training"]["micro_batch"]
    assert "max_tokens_per_step" in proposal.answers_feedback


def test_nonsense_values_are_not_taken():
    proposal = ask("lr=7")
    assert proposal.parameters["training"]["lr"] == BASE.parameters["training"]["lr"]
    assert "lr" in proposal.answers_feedback


def test_earlier_requests_stay_in_later_rounds():
    second = ask("lr=1e-4")
    third = RulesProposer().propose(context("stress_test", round=3, feedback="rank 8", last_proposal=second))
    assert third.parameters["training"]["lr"] == 1e-4
    assert third.parameters["training"]["lora"]["rank"] == 8


def test_no_feedback_needs_no_answer():
    assert BASE.answers_feedback == ""


def test_every_clause_ends_in_a_request_or_in_the_rest():
    requests, left = read_feedback("fewer epochs; say hello。学习率 2e-5", BASE.parameters)
    assert [r.path for r in requests] == ["training.epochs", "training.lr"]
    assert left == ["say hello"]
