"""Each manipulation of the catalogue is found, in the part and by the check that it belongs to."""

from __future__ import annotations

import shutil
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from flows.audit import anchor
from tests.audit.catalogue import CATALOGUE
from tests.audit.manipulations import Manipulation, Target, decision, failed, rebuilt, truncate
from tests.support.run_maker import RunMaker


def test_the_untouched_run_passes(target: Target):
    assert failed(target) == set()


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_manipulation_is_found_where_it_belongs(target: Target, name: str):
    manipulate, expected = CATALOGUE[name]
    manipulate(target)
    assert expected in failed(target)


@pytest.mark.parametrize(
    "manipulate",
    [
        lambda t: truncate(t, rows_too=True),
        rebuilt("decision.recorded", decision(comment="I never said this"), index=-1),
        rebuilt("run.finished", lambda b: b.update(at=str(datetime.fromisoformat(b["at"]) + timedelta(days=1)))),
    ],
    ids=["the tail cut and the run's row with it", "a comment put into the last mouth", "a later end"],
)
def test_what_is_consistent_in_itself_is_found_by_the_anchor_alone(
    finished: RunMaker, target: Target, tmp_path: Path, manipulate: Manipulation
):
    kept = tmp_path / "elsewhere" / "anchor.json"
    anchor(finished.ledger, "r1", kept)
    assert failed(target, kept) == set()
    manipulate(target)
    if (target.run_dir / "release").exists() and "release.published" not in kinds(target):
        shutil.rmtree(target.run_dir / "release")
    assert failed(target) == set()
    assert failed(target, kept) == {("completeness", "the head equals the anchor")}


@pytest.mark.parametrize(
    "manipulate",
    [
        rebuilt("decision.recorded", decision(comment="I never said this")),
        rebuilt("run.created", lambda b: b.update(at=str(datetime.fromisoformat(b["at"]) - timedelta(days=1)))),
    ],
    ids=["a comment put into a mouth", "an earlier beginning"],
)
def test_a_chain_that_was_built_anew_is_found_by_the_gates_that_opened_after_the_change(
    target: Target, manipulate: Manipulation
):
    manipulate(target)
    assert failed(target) == {("integrity", "each gate showed this run's own evidence, proposal, spec and policy")}


def kinds(target: Target) -> set[str]:
    connection = sqlite3.connect(target.database)
    found = {kind for (kind,) in connection.execute("SELECT kind FROM events")}
    connection.close()
    return found
