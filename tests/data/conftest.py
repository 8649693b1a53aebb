"""A finished run of the data stage in each language, and a project to break per test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from specs.project import Project
from tests.support.raw_project import Finished, make_project


@pytest.fixture(params=["en", "zh"])
def finished(request: pytest.FixtureRequest, data_run: Callable[[str], Finished]) -> Finished:
    """A finished run, for reading only."""
    return data_run(request.param)


@pytest.fixture
def project(tmp_path: Path) -> Callable[[str], Project]:
    """`project(language)` writes raw files into tmp_path and returns the spec."""
    return lambda language: make_project(tmp_path, language)
