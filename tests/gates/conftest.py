"""Runs that several tests of gates begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.workspace import Workspace
from tests.support import light_run

TEAM = "policy: {solo: false, approvers: [{id: li}, {id: wang}, {id: zhao}], quorum: 2}\n"


@pytest.fixture
def waiting(light_stages: None, tmp_path: Path) -> Workspace:
    """A run of light stages at its first gate, which two of three people open."""
    workspace = light_run.begin(light_run.make_project(tmp_path / "p", more=TEAM))
    assert light_run.passage(workspace).ending == "waiting"
    return workspace
