"""Feedback is acted on where rules can, and answered in every part."""

from __future__ import annotations

import pytest

from agents.feedback import read_feedback, unanswered
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
        ("再多训练几轮", "training.epochs", 2),
        ("训练更久", "training.epochs", 2),
        ("train longer", "training.epochs", 2),
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


def test_every_structured_request_gets_an_answer_of_its_own():
    asked = [
        "training.lr=0.0001",
        "training.lora.rank=less",
        'training.lora.targets=["q_proj", "v_proj"]',
        'training.lr_schedule="linear"',
        "training.seed=7",
        'training.method="full"',
    ]
    proposal = ask("as discussed\n" + "\n".join(asked))
    training = proposal.parameters["training"]
    assert (training["lr"], training["lora"]["targets"], training["lr_schedule"]) == (
        1e-4,
        ["q_proj", "v_proj"],
        "linear",
    )
    assert training["lora"]["rank"] < BASE.parameters["training"]["lora"]["rank"]
    outcomes = {answer.asked: answer.outcome for answer in proposal.answers}
    assert list(outcomes) == [*asked, "as discussed"]
    assert list(outcomes.values()) == ["done", "done", "done", "done", "done", "refused", "not_understood"]
    assert proposal.answers_feedback == "\n".join(answer.text for answer in proposal.answers)


@pytest.mark.parametrize(
    ("feedback", "after", "answer", "missing"),
    [
        ("", {"lr": 1.0}, "", []),
        ("please be careful", {"lr": 1.0}, "", ["please be careful"]),
        ("please be careful", {"lr": 1.0}, "I was", []),
        ("lr=0.5", {"lr": 0.5}, "", []),
        ("lr=0.5", {"lr": 1.0}, "", ["lr=0.5"]),
        ("lr=0.5", {"lr": 1.0}, "lr stays, because the loss is steady", []),
        ("lr=less", {"lr": 1.0}, "I thought about it", ["lr=less"]),
    ],
)
def test_what_an_answer_leaves_out_is_found(feedback, after, answer, missing):
    assert unanswered(feedback, {"lr": 1.0}, after, answer) == missing


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
