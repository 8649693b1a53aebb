"""What a project's finished runs say about route and model is read from its ledger; what cannot be read is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows import advice_data
from flows.advice_data import ProjectFacts, facts_of
from flows.plan_data import RunData
from specs.parameters import TrainingConfiguration
from tasks.planning.measured import Measured
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


def test_measurements_of_an_older_run_count_for_the_same_data_and_model(monkeypatch: pytest.MonkeyPatch):
    ran = Measured(training=TrainingConfiguration())
    blank = RunData("new", "p", (10, 20), (), "m", "en", None, None, ("", ""), [])
    older = replace(blank, run="old", training=ran.training, measured=ran, measured_on=("cuda", "RTX 4090"))

    def facts(*runs: RunData) -> ProjectFacts:
        found = ProjectFacts()
        for given in runs:
            monkeypatch.setattr(advice_data, "data_of", lambda *_, given=given: given)
            done = {"data": True, "stress_test": given.measured is not None}
            found.take(given.run, SimpleNamespace(done=done.__getitem__), None)  # type: ignore[arg-type]
        return found

    both = facts(blank, older)
    assert both.data is not None
    assert (both.data_run, both.measured_run, both.data.measured, both.data.run) == ("new", "old", ran, "new")
    assert facts(older).measured_run == "old"
    for other in (replace(older, lengths=(10, 21)), replace(older, base_model="another")):
        apart = facts(blank, other)
        assert (apart.measured_run, apart.data) == (None, blank)
