"""Promises of the command: what contradicts is said, nothing is dropped in silence, errors name a way out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flows.cli.plans import _checked, _notes, _refuse_contradictions, _table
from specs.errors import InputError
from tasks.planning.families import Families
from tasks.planning.machine import machine_named, parse_cards
from tasks.planning.picture import picture
from tasks.planning.plans import Limits
from tasks.planning.search import best_of_each, search
from tasks.planning.texts import lacking, placed, short, way_out
from tests.planning.conftest import SMALL, WORKLOAD, machine_of

MIB = 2**20


@pytest.mark.parametrize("text", ["A100:0", "A100:-1", "A100:two", "A100:1.5", ":"])
def test_a_count_that_is_none_is_named(text: str):
    with pytest.raises(InputError, match="not a number of cards"):
        parse_cards(text)


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
        _refuse_contradictions(**{**options, **given})
    assert raised.value.hint


def test_an_unknown_method_is_said_by_its_option():
    with pytest.raises(InputError, match="--method"):
        _checked(Limits, methods=("loraa",))


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
    assert _table(found, best_of_each(found.plans, 20), language).row_count > 1
    assert _notes(found.plans[0], machine, Limits(), language)
    for plan in (*found.plans[:50], *found.refused[:200]):
        assert short(plan, language)
        assert placed(plan, language)
        if plan.refused is not None:
            assert all(lacking(lack, language) for lack in plan.refused.lacks)
            assert way_out(plan.refused.way_out, language)


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_picture_is_drawn_and_equal_searches_give_equal_bytes(families: Families, kind: str):
    found = search("small", SMALL, machine_of(2**30), WORKLOAD, Limits(), families)
    plans = best_of_each(found.plans, 5)
    drawn = picture(found, plans, "zh", kind)
    assert drawn.startswith(b"<svg" if kind == "svg" else b"\x89PNG")
    assert drawn == picture(found, plans, "zh", kind)
    json.dumps(found.model_dump(mode="json"))
