"""The page on dividing layers: its commands parse and divide what they name, its versions are those installed."""

from __future__ import annotations

import re
import shlex
from importlib.metadata import version
from pathlib import Path

import pytest

from flows.cli import reference
from tasks.memory.architecture import architecture_of
from tasks.memory.asked import settings_of

PAGE = (Path(__file__).parents[2] / "docs" / "dividing-layers.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^gatewright estimate .*$", PAGE, re.MULTILINE)
GRID = ("method", "gpus", "nodes", "sharding", "tensor_parallel", "pipeline_stages", "gradient_accumulation")


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_divides_its_model(line: str):
    options = dict(reference.commands())["gatewright estimate"].make_context("estimate", shlex.split(line)[2:]).params
    found = settings_of(architecture_of(options["model"]), {name: options[name] for name in GRID})
    assert found.divides_layers
    assert found.gpus == found.tensor_parallel * found.pipeline_stages


@pytest.mark.parametrize(("package", "name"), [("transformers", "transformers"), ("peft", "PEFT")])
def test_what_the_page_says_of_a_library_is_of_the_one_that_is_installed(package: str, name: str):
    assert f"{name} {'.'.join(version(package).split('.')[:2])}" in PAGE
