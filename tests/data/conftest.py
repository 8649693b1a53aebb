"""One finished run of the data stage per language, and a project to break per test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from specs.project import Project
from tests.support.raw_project import Finished, finish, make_project


@pytest.fixture(scope="session", params=["en", "zh"])
def finished(request: pytest.FixtureRequest, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A finished run, for reading only."""
    return finish(tmp_path_factory.mktemp(f"data-{request.param}"), request.param, tiny_model)


@pytest.fixture
def project(tmp_path: Path) -> Callable[[str], Project]:
    """`project(language)` writes raw files into tmp_path and returns the spec."""
    return lambda language: make_project(tmp_path, language)
