"""The page on planning says what the code does: its commands parse, its names are known, its figures are the code's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from flows.cli import reference
from tasks.memory.architecture import architecture_of
from tasks.memory.dividing import BUBBLE
from tasks.planning import timing
from tasks.planning.machine import machine_named, parse_cards
from tasks.planning.plans import Lever
from tasks.planning.texts import text

PAGE = (Path(__file__).parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^gatewright plan .*$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_the_page_parses_and_its_names_are_known(line: str):
    options = dict(reference.commands())["gatewright plan"].make_context("plan", shlex.split(line)[2:]).params
    if options["model"]:
        assert architecture_of(options["model"])
    assert machine_named(*parse_cards(options["gpu"])).device.usable_bytes > 0


def test_the_shares_of_rates_are_those_of_the_code():
    for low, expected, high in (timing.COMPUTE, timing.MEMORY, timing.LINK):
        assert f"{expected:.0%} ({100 * low:.0f} to {100 * high:.0f})".replace("%", " %") in PAGE
    assert f"at {BUBBLE:.0%} or less".replace("%", " %") in PAGE


def test_every_lever_has_words_in_both_languages():
    for lever in Lever.__args__:  # type: ignore[attr-defined]
        assert all(text[f"lever.{lever}"])
