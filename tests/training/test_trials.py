"""Small trials of the dry run: what is tried, when a trend stands out of its noise, what would be proposed."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from specs.parameters import DryRunParameters, LoraParameters, TrainingConfiguration, leaves
from specs.students_t import central_probability, quantile
from specs.trials import Cause, Outcome, TrialSettings, TrialsReport
from tasks.training.trials import confirmed, level_of, outcome, short, trended, variants, with_changes
from tests.support.samples import small_training

EVERYTHING = TrialSettings(vary=["rank", "lr", "length"])
LENGTHS = [10, 12, 20, 31, 40, 44, 50, 80]


@pytest.mark.parametrize(
    ("level", "freedom", "t"),
    [(0.95, 1, 12.706), (0.95, 3, 3.182), (0.99, 3, 5.841), (0.95, 30, 2.042), (0.9, 4, 2.132)],
)
def test_the_width_of_an_interval_is_that_of_the_published_tables(level, freedom, t):
    assert quantile(level, freedom) == pytest.approx(t, abs=5e-4)
    assert central_probability(quantile(level, freedom), freedom) == pytest.approx(level)


@given(st.integers(1, 512), st.floats(1e-6, 0.2))
def test_every_trial_differs_from_the_base_trial_in_its_setting_alone(rank, lr):
    base = short(small_training(lora=LoraParameters(rank=rank, alpha=2.0 * rank), lr=lr), 6)
    first, *others = variants(base, EVERYTHING, LENGTHS)
    assert first.training == base
    allowed = {"rank": {"lora.rank", "lora.alpha"}, "lr": {"lr"}, "length": {"max_length"}}
    for tried in others:
        one, other = leaves(base.model_dump()), leaves(tried.training.model_dump())
        changed = {name for name in one if one[name] != other[name]}
        assert tried.dimension is not None
        assert changed == (set() if tried.cannot else allowed[tried.dimension])
        assert tried.training.lora.alpha / tried.training.lora.rank == pytest.approx(2.0)
    assert [t.name for t in others if t.cannot] == (["rank-down"] if rank == 1 else [])


def test_a_shorter_length_leaves_a_quarter_out_and_is_not_tried_where_it_would_leave_none():
    base = short(small_training(gradient_accumulation=1), 4)
    [_, shorter] = variants(base, TrialSettings(vary=["length"]), LENGTHS)
    assert (shorter.training.max_length, shorter.cannot) == (48, None)
    [_, same] = variants(base, TrialSettings(vary=["length"]), [24] * 9)
    assert same.cannot == Cause(key="one_length")
    assert outcome(same, {}, {}, 0.95).trend == "not tried"
    [_, few] = variants(small_training(), TrialSettings(vary=["length"]), LENGTHS[:6])
    assert few.cannot == Cause(key="few_left", values={"left": 5, "batch": 6})


def test_a_base_trial_is_the_configuration_over_fewer_steps_with_its_share_of_the_warm_up():
    base = short(small_training(max_steps=30, lr_warmup_steps=6), 10)
    assert (base.max_steps, base.lr_warmup_steps, base.save_steps) == (10, 2, 10)
    assert base.lr == small_training().lr


def test_a_setting_is_named_once_and_rank_needs_an_adapter():
    with pytest.raises(ValidationError, match="names a setting twice"):
        TrialSettings(vary=["lr", "lr"])
    values = {"model": "m", "training": {"method": "full"}, "trials": {"vary": ["rank"]}}
    with pytest.raises(ValidationError, match="method full has no adapter"):
        DryRunParameters.model_validate(values)


def test_noise_alone_stands_out_in_one_dry_run_of_twenty_at_most():
    """Five trends in each of 600 dry runs whose settings do nothing at all."""
    rng, level, alarms = random.Random(5), level_of(5), 0
    for _ in range(600):
        base = dict.fromkeys(range(4), (5.0, 3.0))
        found = [trended(base, {s: (5.0, 3.0 + rng.gauss(0, 0.1)) for s in base}, level) for _ in range(5)]
        alarms += any(f.trend != "within noise" for f in found)
    assert alarms / 600 < 0.05 + 2 * (0.05 * 0.95 / 600) ** 0.5


@given(st.floats(-1, 1), st.lists(st.floats(-0.01, 0.01), min_size=4, max_size=4))
def test_what_all_seeds_share_cancels_and_the_change_is_the_mean_of_the_pairs(shift, noise):
    base = {seed: (5.0, 3.0 + seed) for seed in range(4)}
    tried: dict[int, Any] = {seed: (5.0, 3.0 + seed + shift + noise[seed]) for seed in range(4)}
    found = trended(base, tried, 0.99)
    assert found.change == pytest.approx(shift + sum(noise) / 4)
    assert found.half_width is not None
    assert found.half_width <= quantile(0.99, 3) * 0.0116  # the spread of the noise, not that of the losses
    if abs(shift) > 0.1:
        assert found.trend == ("lower" if shift < 0 else "higher")


def test_one_diverged_training_is_the_finding_and_no_mean_hides_it():
    base: dict[int, Any] = {1: (5.0, 3.0), 2: (5.0, 3.1)}
    found = trended(base, {1: (5.0, 2.0), 2: None}, 0.95)
    assert (found.trend, found.change) == ("diverged", None)
    assert trended({1: None, 2: (5.0, 3.0)}, base, 0.95).trend == "not tried"


def tried(name: str, change: float, share: float, trend: Any = "lower") -> Outcome:
    dimension, _, side = name.partition("-")
    factor = {"rank": 2.0, "lr": 3.0, "length": 2.0}[dimension]
    return Outcome.model_validate(
        {
            "name": name,
            "dimension": dimension,
            "before": 8.0,
            "tried": 8.0 * factor if side == "up" else 8.0 / factor,
            "trend": trend,
            "change": change,
            "half_width": 0.01,
            "share": share,
        }
    )


def report(*outcomes: Outcome) -> TrialsReport:
    return TrialsReport(
        model="small", steps=10, seeds=[1, 2], samples=8, level=0.99, base_fall=1.0, outcomes=list(outcomes)
    )


def test_only_the_better_side_of_a_setting_that_matters_would_be_proposed_and_no_shorter_length():
    found = report(
        tried("rank-down", -0.2, -0.2),
        tried("rank-up", -0.3, -0.3),
        tried("lr-down", -0.01, -0.01),
        tried("lr-up", -0.5, -0.5, "within noise"),
        tried("length-down", -0.4, -0.4),
    )
    assert [o.name for o in found.proposed] == ["rank-up"]


def test_changes_are_relative_to_what_would_be_proposed_for_the_base_model():
    training = TrainingConfiguration(lr=5e-3, lora=LoraParameters(rank=8, alpha=16))
    base, changed = with_changes(training, [tried("lr-up", -0.5, -0.5), tried("rank-down", -0.2, -0.2)], 1e-4)
    assert base.lr == 1e-4
    assert changed.lr == pytest.approx(3e-4)
    assert (changed.lora.rank, changed.lora.alpha) == (4, 8)


@pytest.mark.parametrize(("shift", "status"), [(-0.5, "confirmed"), (0.5, "contradicted"), (0.0, "within noise")])
def test_the_base_model_confirms_contradicts_or_shows_nothing(shift, status):
    base: dict[int, Any] = dict.fromkeys(range(3), (5.0, 3.0))
    changed: dict[int, Any] = {seed: (5.0, 3.0 + shift + 0.01 * (seed - 1)) for seed in range(3)}
    assert confirmed([tried("lr-up", -0.5, -0.5)], base, changed).status == status
    assert confirmed([tried("lr-up", -0.5, -0.5)], base, {**changed, 2: None}).status == "contradicted"
