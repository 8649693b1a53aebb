"""Promises of the command: what contradicts is said, nothing is dropped in silence, errors name a way out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli.app import app, load_groups
from flows.cli.plans import _drawn_as
from flows.cli.values import refuse_odd
from flows.plan_asked import adapters_of, checked, optimizers_of, refuse_contradictions
from flows.plan_data import RunData, measured_for
from flows.plan_words import Answer, document, lines_after, lines_before, preferred, table_cells
from specs.errors import InputError
from specs.parameters import LoraParameters, TrainingConfiguration
from tasks.planning.families import Families
from tasks.planning.machine import machine_named, parse_cards
from tasks.planning.measured import Measured, Times
from tasks.planning.picture import picture
from tasks.planning.plans import Lack, Limits, Step
from tasks.planning.search import best_of_each, kind_of, search
from tasks.planning.texts import lacking, placed, short, text, ways_out
from tasks.planning.workload import Workload
from tests.planning.conftest import SMALL, WORKLOAD, machine_of

MIB = 2**20


@pytest.mark.parametrize("text", ["A100:0", "A100:-1", "A100:two", "A100:1.5", ":"])
def test_a_count_that_is_none_is_named(text: str):
    with pytest.raises(InputError, match="not a number of cards"):
        parse_cards(text)


@pytest.mark.parametrize("text", ["", "  ", ":4"])
def test_no_card_is_not_this_machine(text: str):
    with pytest.raises(InputError, match="names no card"):
        parse_cards(text)


def test_a_count_above_the_limit_is_told_the_limit():
    with pytest.raises(InputError, match="at most 9999"):
        parse_cards("RTX 4090:99999")
    assert parse_cards("RTX 4090:9999") == ("RTX 4090", 9999)


def test_a_lack_that_is_small_is_not_rounded_to_nothing():
    def said(rule: Any, needed: float, there: float) -> str:
        return lacking(Lack(rule=rule, needed=needed, there=there), "en")

    gib = 2**30
    assert said("memory", 30 * gib, 24 * gib).startswith("6.0 GiB too much: 30.0 needed")
    assert said("memory", 24.01 * gib, 24 * gib).startswith("0.010 GiB too much: 24.010 needed")
    assert said("hours", 2.3, 2.0) == "2.3 hours, 2.0 allowed"


@pytest.mark.parametrize("option", ["--model", "--gpu", "--data", "--lora-targets", "--method", "--optimizer"])
def test_an_empty_option_is_not_its_default(option: str):
    load_groups()
    found = CliRunner().invoke(app, ["plan", "--model", "gpt2", option, ""])
    assert found.exit_code == 2
    assert f"{option} is empty" in found.output


def test_cards_are_a_name_and_a_count():
    assert parse_cards("A100 SXM4 80GB:4") == ("A100 SXM4 80GB", 4)
    assert parse_cards("RTX 4090") == ("RTX 4090", 1)


@pytest.mark.parametrize(
    "given",
    [
        {"data": "r1", "samples": 5},
        {"hours": 3.0},
        {"money": 3.0, "samples": 10},
    ],
)
def test_options_without_effect_are_refused(given: dict[str, Any]):
    options = {"data": None, "samples": None, "hours": None, "money": None, "price": None}
    with pytest.raises(InputError) as raised:
        refuse_contradictions(**{**options, **given})
    assert raised.value.hint


def test_an_unknown_method_is_said_by_its_option():
    with pytest.raises(InputError, match="--method"):
        checked(Limits, methods=("loraa",))


@pytest.mark.parametrize(("gpu", "nvlink", "bus"), [("RTX 4090", False, 31.5), ("A100 SXM4 80GB", True, 31.5)])
def test_links_are_those_of_the_catalog(gpu: str, nvlink: bool, bus: float):
    found = machine_named(gpu, 2)
    assert (found.nvlink, found.host_bus_gb_s) == (nvlink, bus)
    assert found.link_gb_s == (300.0 if nvlink else 31.5)
    assert machine_named(gpu, 2, link_gb_s=10.0).link_gb_s == 10.0


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_plan_and_refusal_can_be_said(families: Families, language: Any):
    machine = machine_of(512 * MIB + 60 * MIB, 2)
    found = search("small", SMALL, machine, WORKLOAD, Limits(), families)
    assert found.plans
    assert any(plan.refused is not None and plan.refused.way_out for plan in found.refused[:200])
    answer = Answer(found, machine, WORKLOAD, Limits())
    _, head, rows = table_cells(found, language)
    assert len(rows) > 1
    assert {len(row) for row in rows} == {len(head)}
    assert lines_before(answer, language) == []
    assert preferred(found, found.plans[0], language) in lines_after(answer, language)
    json.dumps(document(answer, language))
    for plan in (*found.plans[:50], *found.refused[:200]):
        assert short(plan, language)
        assert placed(plan, language)
        if plan.refused is not None:
            assert all(lacking(lack, language) for lack in plan.refused.lacks)
            assert all(ways_out(plan.refused.way_out, language))


def steps(*levers: str, fits: bool) -> list[Step]:
    """Levers that change nothing."""
    return [Step.model_validate({"lever": name, "change": {}, "needed_bytes": 1, "fits": fits}) for name in levers]


def joined(found: list[Step]) -> list[str]:
    return [line.partition(" ")[0] for line in ways_out(found, "en")]


def test_levers_that_suffice_alone_are_alternatives_and_others_are_taken_together():
    assert joined(steps("lora", "qlora", "cards", fits=True)) == ["LoRA", "or", "or"]
    together = [*steps("lora", "qlora", fits=False), *steps("length", "cards", fits=True)]
    assert joined(together) == ["LoRA", "and", "and", "or"]
    assert joined(steps("lora", "qlora", fits=False)) == ["LoRA", "and", "and"]
    assert "smaller model" in ways_out(steps("lora", "qlora", fits=False), "en")[-1]
    assert "smaller model" in ways_out([], "en")[0]


def test_only_kinds_without_a_feasible_plan_are_shown_as_refused_and_all_are_in_the_document(families: Families):
    machine = machine_of(512 * MIB + 20 * MIB, 2)
    answer = Answer(search("small", SMALL, machine, WORKLOAD, Limits(), families), machine, WORKLOAD, Limits())
    shown = [line for line in lines_after(answer, "en") if line.startswith("refused:")]
    feasible = {kind_of(p) for p in answer.found.plans}
    assert shown
    assert len(shown) == min(5, len({kind_of(p) for p in answer.found.refused} - feasible))
    assert len(document(answer, "en")["refused"]) == len(answer.found.refused) > len(shown)


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_picture_is_drawn_and_equal_searches_give_equal_bytes(families: Families, kind: str):
    found = search("small", SMALL, machine_of(2**30), WORKLOAD, Limits(), families)
    plans = best_of_each(found.plans, 5)
    drawn = picture(found, plans, "zh", kind)
    assert drawn.startswith(b"<svg" if kind == "svg" else b"\x89PNG")
    assert drawn == picture(found, plans, "zh", kind)
    json.dumps(found.model_dump(mode="json"))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_size_or_rate_that_is_none_is_named_by_its_option(value: float):
    with pytest.raises(InputError, match="--link-gb-s"):
        refuse_odd({"--memory-gb": 24.0, "--link-gb-s": value})


def test_an_unknown_attention_is_said_by_its_option():
    with pytest.raises(InputError, match="--attention"):
        checked(Workload, attention="foo")


@pytest.mark.parametrize("name", ["plans.pdf", "plans", "no-such-folder/plans.png"])
def test_a_picture_that_cannot_be_written_is_refused_before_the_search(name: str):
    with pytest.raises(InputError, match="--plot"):
        _drawn_as(Path(name))


def test_settings_of_the_run_are_taken_where_nobody_gives_others():
    training = TrainingConfiguration(optimizer="adamw", lora=LoraParameters(rank=64, dropout=0, targets=["q_proj"]))
    assert optimizers_of(None, training)["optimizers"][:2] == ("adamw", "adamw_fused")
    assert optimizers_of(["sgd"], training) == {"optimizers": ("sgd",)}
    assert adapters_of(None, None, training) == {"rank": 64, "dropout": 0, "targets": ("q_proj",)}
    assert adapters_of(8, "all-linear", training) == {"rank": 8, "dropout": 0, "targets": "all-linear"}
    assert adapters_of(None, None, None) == {"rank": 16, "dropout": 0.05, "targets": "all-linear"}


@pytest.mark.parametrize(
    ("on", "gpu", "model", "why"),
    [
        (("cuda", "A100-SXM4-80GB"), "A100 SXM4 80GB", None, None),
        (("cuda", "A100-SXM4-80GB"), "RTX 3060", None, "other_device"),
        (("cpu", "CPU"), "RTX 3060", None, "other_device"),
        (("", ""), "RTX 3060", None, "other_device"),
        (("cuda", "A100-SXM4-80GB"), "A100 SXM4 80GB", "another", "other_model"),
    ],
)
def test_times_of_another_device_or_model_are_not_used_and_that_is_said(
    on: tuple[str, str], gpu: str, model: str | None, why: str | None
):
    training = TrainingConfiguration()
    measured = Measured(training=training, times=Times(seconds_per_step=3.0, steps=8, padded_tokens_per_step=900.0))
    given = RunData("r1", "p", (8,), (), "mine", "en", training, measured, on, [])
    assert measured_for(given, model, machine_named(gpu).device) == (measured if why is None else None, why)
    if why is not None:
        for language in ("en", "zh"):
            assert text(language, why, was="CPU", device=gpu, base="mine", model=model)  # type: ignore[arg-type]
