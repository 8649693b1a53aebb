"""A finished run, and a copy of it for each manipulator."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from specs.policy import Approver, Policy
from tests.audit.manipulations import Target
from tests.support.run_maker import RunMaker


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunMaker:
    """A finished run with two policies' worth of people, an edit, a rework, a failed attempt and an override."""
    policy = Policy(solo=False, approvers=[Approver(id="me", may_override=True), Approver(id="you")])
    maker = RunMaker(tmp_path_factory.mktemp("finished") / "project", policy=policy).start().until_gate("stress_test")
    maker.decide(edits={"lr": "1e-4"}, actor="you")
    maker.decide(expected_digest=maker.shown)
    maker.until_gate("train")
    maker.decide("rework", comment="say why")
    maker.until_gate("train")
    maker.decide()
    maker.work(fail="out of memory")
    maker.work(loss=2.0)
    maker.until_gate("evaluate")
    maker.decide(override=True, comment="known")
    return maker.to_the_end()


@pytest.fixture
def target(finished: RunMaker, tmp_path: Path) -> Target:
    finished.ledger.close()
    shutil.copytree(finished.project_dir, tmp_path / "project")
    return Target(tmp_path / "project")
