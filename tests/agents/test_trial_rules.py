"""Small trials at the gates: asked for in project.yaml, followed with their noise, marked where unconfirmed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agents.blocks import Heading, Paragraph, Table
from agents.gate_page import gate_page
from agents.report_trials import trials as reported
from agents.rules import RulesProposer
from specs.parameters import LoraParameters, TrainingConfiguration, leaves
from specs.project import Project
from specs.proposals import Proposal
from specs.trials import Outcome, TrialSettings, TrialsReport
from tasks.training.trials import outcome as outcome_of
from tasks.training.trials import short, variants
from tests.agents.proposer_cases import context, project

CONFIRMED = {"status": "confirmed", "changes": ["lr-up"], "change": -0.2, "half_width": 0.05, "share": -0.3}


def outcome(name: str = "lr-up", dimension: str = "lr", factor: float = 3.0, **more: Any) -> dict[str, Any]:
    found = {"name": name, "dimension": dimension, "before": 1.0, "tried": factor, "trend": "lower"}
    return {**found, "change": -0.4, "half_width": 0.1, "share": -0.25, **more}


def trials(*outcomes: dict[str, Any], confirmation: dict[str, Any] | None = None) -> dict[str, Any]:
    found = {"model": "small", "steps": 10, "seeds": [1, 2, 3, 4], "samples": 32, "level": 0.99, "base_fall": 1.6}
    return {**found, "outcomes": list(outcomes), "confirmation": confirmation}


def proposed(found: dict[str, Any], spec: Project | None = None) -> Proposal:
    return RulesProposer().propose(context("stress_test", spec or project(), trials=found))


def test_the_trials_of_the_spec_are_proposed_with_the_learning_rate_that_they_are_for():
    settings = {"model": "other", "trials": {"vary": ["rank", "lr"], "steps": 8, "repeats": 3}}
    parameters = RulesProposer().propose(context("dry_run", project(dry_run=settings))).parameters["trials"]
    assert (parameters["vary"], parameters["steps"], parameters["repeats"]) == (["rank", "lr"], 8, 3)
    assert parameters["target_lr"] == proposed({}).parameters["training"]["lr"]
    assert RulesProposer().propose(context("dry_run", project())).parameters["trials"]["vary"] == []


def test_a_confirmed_trend_changes_the_proposal_relative_to_the_rule_and_says_how_much_more_was_learnt():
    before = proposed({}).parameters["training"]
    found = proposed(trials(outcome(), outcome("rank-up", "rank", 2.0), confirmation=CONFIRMED))
    after = found.parameters["training"]
    assert after["lr"] == pytest.approx(3 * before["lr"])
    assert (after["lora"]["rank"], after["lora"]["alpha"]) == (2 * before["lora"]["rank"], 2 * before["lora"]["alpha"])
    changed = {k for k, v in leaves(after).items() if leaves(before)[k] != v}
    assert changed == {"lr", "lora.rank", "lora.alpha"}
    [reason] = [r for r in found.reasons if r.parameter == "training.lr"]
    assert reason.source == "dry_run"
    assert "25 %" in reason.text
    assert "not a promise" in reason.text
    assert not any("UNCONFIRMED" in w for w in found.warnings)


@pytest.mark.parametrize(
    ("confirmation", "said"),
    [
        ({"status": "not run", "changes": ["lr-up"], "reason": "out of memory"}, "was not made: out of memory"),
        ({**CONFIRMED, "status": "within noise", "change": -0.01}, "does not stand out of its noise (-0.01 ± 0.05"),
        (None, ""),
    ],
)
def test_an_unconfirmed_trend_is_marked_at_the_gate(confirmation, said):
    found = proposed(trials(outcome(), confirmation=confirmation or {"status": "same model", "changes": ["lr-up"]}))
    marked = [w for w in found.warnings if w.startswith("UNCONFIRMED")]
    assert len(marked) == (confirmation is not None)
    assert all(said in w for w in marked)
    page = gate_page(
        gate="stress_test", round=1, proposal=found, previous=None, finished=None, expected=[], spec=project()
    )
    assert ("UNCONFIRMED on the base model: lr" in page) == (confirmation is not None)


def test_what_the_base_model_contradicts_is_not_taken_over_and_said():
    found = proposed(trials(outcome(), confirmation={**CONFIRMED, "status": "contradicted", "change": 0.2}))
    assert found.parameters == proposed({}).parameters
    assert any("lr stays" in w and "0.2 ± 0.05" in w for w in found.warnings)


@pytest.mark.parametrize(
    "idle",
    [
        outcome(trend="within noise"),
        outcome(share=-0.001),
        outcome(trend="higher", share=0.25),
        outcome("length-down", "length", 0.5),
        outcome(trend="diverged", change=None, half_width=None, share=None),
    ],
    ids=["noise", "immaterial", "worse", "length", "diverged"],
)
def test_noise_trifles_and_a_shorter_length_change_nothing(idle):
    assert proposed(trials(idle)).parameters == proposed({}).parameters


def test_a_value_that_the_spec_fixes_stays_and_is_not_called_unconfirmed():
    fixed = project(stages={"train": {"lr": 0.0007}})
    found = proposed(trials(outcome(), confirmation={"status": "not run", "changes": ["lr-up"], "reason": "x"}), fixed)
    assert found.parameters["training"]["lr"] == 0.0007
    assert not any("UNCONFIRMED" in w for w in found.warnings)


def test_a_value_that_the_limits_hold_back_was_not_tried_and_is_marked():
    before = proposed({}).parameters["training"]["lr"]
    bounded = project(stages={"train": {"lr": {"max": 2 * before}}})
    found = proposed(trials(outcome(), confirmation=CONFIRMED), bounded)
    assert found.parameters["training"]["lr"] == pytest.approx(2 * before)
    assert any("UNCONFIRMED" in w and f"{3 * before:g} was tried" in w for w in found.warnings)


def test_a_chinese_project_is_told_in_chinese():
    found = proposed(
        trials(outcome(), confirmation={"status": "not run", "changes": ["lr-up"], "reason": "x"}),
        project(language="zh"),
    )
    assert any(w.startswith("未在基座模型上确认") for w in found.warnings)


def every_kind_of_outcome() -> list[Outcome]:
    """Settings that do not exist, that cannot be compared, that diverge, and one that learns more."""
    settings, found = TrialSettings(vary=["rank", "lr", "length"]), []
    calm: dict[int, Any] = {1: (3.0, 2.9), 2: (3.0, 2.9)}
    for lora, lr, packing, lengths in [(1, 0.9, True, [9]), (1024, 1e-3, False, [9]), (8, 1e-3, False, [9, 90])]:
        training = TrainingConfiguration(lora=LoraParameters(rank=lora, alpha=2 * lora), lr=lr, packing=packing)
        tried = variants(short(training, 4), settings, lengths)[1:]
        for base, losses in ((calm, {1: (3.0, 2.8), 2: None}), ({**calm, 2: None}, calm), (calm, {**calm, 2: (3, 2)})):
            found += [outcome_of(v, base, losses, 0.95) for v in tried]
    return found


def report_blocks(folder: Path, language: Any, **more: Any) -> list[Any]:
    common: dict[str, Any] = {"model": "m", "steps": 4, "seeds": [1, 2], "samples": 8, "level": 0.95, "base_fall": None}
    found = TrialsReport.model_validate({**common, "outcomes": every_kind_of_outcome(), **more})
    (folder / "trials.json").write_text(found.model_dump_json())
    return reported(folder, language)


@pytest.mark.parametrize("status", ["confirmed", "contradicted", "within noise", "not run", "same model"])
def test_a_chinese_report_of_trials_holds_no_english_but_names_of_settings(tmp_path, status):
    cause = {"key": "no_confirm_steps"} if status == "not run" else None
    of = {"status": status, "changes": ["lr-up", "rank-down"], "cause": cause}
    said = []
    for block in report_blocks(tmp_path, "zh", measured_on="training", confirmation=of):
        assert isinstance(block, Heading | Paragraph | Table)
        cells = [c.text for row in block.rows for c in row] if isinstance(block, Table) else [block.text]
        said += [*block.header, *cells] if isinstance(block, Table) else cells
    words = set(re.findall(r"[A-Za-z_-]{2,}", " ".join(said)))
    assert words <= {"nats", "confirm_steps"}


def test_a_report_says_what_was_measured_on_and_what_was_not_tried(tmp_path):
    held_out, training = (
        " ".join(b.text for b in report_blocks(tmp_path, "en", measured_on=on) if isinstance(b, Paragraph))
        for on in ("held-out", "training")
    )
    assert "8 held-out samples" in held_out
    assert "held-out samples" not in training
    assert "8 training samples" in training
    none = [o for o in every_kind_of_outcome() if o.cause is not None and o.cause.key == "no_lower_rank"]
    [_, said, table] = report_blocks(tmp_path, "en", outcomes=none[:1])
    assert said.text == "None of the settings could be tried; no trial was made."
    assert [row[0].text for row in table.rows] == ["rank below 1"]


def test_a_trend_of_training_samples_is_followed_and_said_to_be_one():
    on_training = {**trials(outcome(), confirmation=CONFIRMED), "measured_on": "training"}
    found = proposed(on_training)
    assert any("follows a loss on training samples" in w for w in found.warnings)
    assert all("held-out" not in r.text for r in found.reasons if r.parameter == "training.lr")
    assert not any("training samples" in w for w in proposed(trials(outcome(), confirmation=CONFIRMED)).warnings)
