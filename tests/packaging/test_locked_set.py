"""The locked set is a plain list of exact versions that fits what the package asks for."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

packaging = pytest.importorskip("packaging.requirements")
ROOT = Path(__file__).parents[2]
LINES = [
    line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.strip() and not line.startswith("#")
]
LOCKED = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower(): line.split("==")[1] for line in LINES}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WANTED = [*PROJECT["dependencies"], *(r for extra in PROJECT["optional-dependencies"].values() for r in extra)]


def test_every_line_is_one_plain_exact_version():
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line) for line in LINES)
    assert len(LOCKED) == len(LINES)


def test_torch_is_the_plain_release_that_gives_gpu_users_their_build():
    assert LOCKED["torch"] == "2.13.0"


@pytest.mark.parametrize("text", WANTED)
def test_every_requirement_is_locked_to_a_version_that_satisfies_it(text: str):
    wanted = packaging.Requirement(text)
    name = re.sub(r"[-_.]+", "-", wanted.name).lower()
    assert name in LOCKED
    assert wanted.specifier.contains(LOCKED[name])


@pytest.mark.parametrize("name", ["torch", "transformers", "peft", "accelerate", "prefect", "langchain", "pydantic"])
def test_the_suite_runs_on_the_locked_versions(name: str):
    assert version(name).partition("+")[0] == LOCKED[name]
