"""The page on memory says what the code does: its commands parse, and its generations are those of the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from flows.cli import reference
from tasks.memory.architecture import architecture_of
from tasks.memory.devices import named
from tasks.memory.generations import GENERATIONS

PAGE = (Path(__file__).parents[2] / "docs" / "memory.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^gatewright estimate .*$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_the_page_parses_and_its_names_are_known(line: str):
    options = dict(reference.commands())["gatewright estimate"].make_context("estimate", shlex.split(line)[2:]).params
    assert architecture_of(options["model"])
    assert options["gpu"] is None or named(options["gpu"])


def test_the_page_names_every_generation():
    assert set(re.findall(r"^\| `([a-z][\w-]+)` \|", PAGE, re.MULTILINE)) == set(GENERATIONS)
