"""What a project's finished runs say about route and model is read from its ledger; what cannot be read is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.advice_data import facts_of
from tests.support import light_run


@pytest.mark.usefixtures("light_stages")
def test_a_finished_run_counts_and_one_whose_records_are_damaged_is_named(tmp_path: Path):
    project = light_run.make_project(tmp_path / "p", more="objective: {metric: fault_type_coverage, at_least: 0.1}\n")
    assert facts_of(project).past == ()
    light_run.complete(project)
    found = facts_of(project)
    past = found.past[0]
    assert (past.run, past.model, past.method, past.reached) == ("r1", "tiny", "lora", True)
    assert (found.data, found.unread) == (None, ["r1"]), "a light run has no samples.parquet: said, and not in the way"
    (project / "runs" / "r1" / "spec.json").write_bytes(b"{")
    assert facts_of(project).unread == ["r1"]
    assert facts_of(project).past == ()
