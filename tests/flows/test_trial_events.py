"""Each small trial of a dry run is an event of the ledger, with its figures, before the attempt is published."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.audit.history import read_history
from flows.audit.story import KEEP, show
from flows.measured import new_trials
from flows.workspace import Workspace
from specs.errors import WorkerError
from specs.events import TrialEnded
from specs.files import write_lines
from specs.trials import TrialRecord
from tests.support import light_run

TRIAL = TrialRecord(
    number=1,
    purpose="trial",
    name="base",
    seed=17,
    model="small",
    changes={},
    steps=4,
    planned=4,
    outcome="ended",
    loss_before=5.0,
    loss_after=4.0,
    started_at="2026-11-30T10:00:00+00:00",
    seconds=61.5,
)
CHANGED = {"number": 2, "name": "lr-up", "changes": {"lr": 0.006}, "loss_after": None}
DIED = {**CHANGED, "outcome": "died", "why": "the worker was killed", "steps": 1, "seconds": 2.5}
TRIALS = [TRIAL, TRIAL.model_copy(update=DIED)]


def tried(context) -> None:
    """What a dry run leaves that made trials."""
    if context.stage == "dry_run":
        write_lines(context.artifacts / "trials.jsonl", TRIALS)


def tried_and_failed(context) -> None:
    """A dry run that fails after its trials: they lie in its working folder."""
    if context.stage == "dry_run":
        write_lines(context.checkpoints_dir / "trials" / "trials.jsonl", TRIALS[:1])
        raise WorkerError("it broke", "report this")


@pytest.fixture
def after_data(tmp_path: Path, light_stages) -> Workspace:
    """A run whose dry run is approved and not run yet."""
    workspace = light_run.begin(light_run.make_project(tmp_path / "p"))
    try:
        for _ in range(2):
            light_run.passage(workspace)
            light_run.decide(workspace)
        yield workspace
    finally:
        light_run.HOW["while_running"] = lambda context: None


def events_of(workspace: Workspace) -> list[TrialEnded]:
    found = (event.read() for event in light_run.ledger_of_run(workspace).events(workspace.run))
    return [event for event in found if isinstance(event, TrialEnded)]


def test_every_trial_is_an_event_with_its_figures_before_the_attempt_is_published_and_is_told(after_data):
    light_run.HOW["while_running"] = tried
    light_run.passage(after_data)
    ledger = light_run.ledger_of_run(after_data)
    kinds = [event.kind for event in ledger.events(after_data.run)]
    assert kinds[kinds.index("trial.ended") :].index("attempt.published") > 0
    said = [event.model_dump(include=set(TrialRecord.model_fields)) for event in events_of(after_data)]
    assert said == [trial.model_dump() for trial in TRIALS]
    folder = after_data.attempt("dry_run", 1) / "artifacts"
    assert new_trials(ledger, after_data, "dry_run", 1, folder) == []
    history = read_history(ledger, after_data.run, after_data.folder, keep=KEEP)
    for language, words, end in (("en", "2 small trials", "its worker died"), ("zh", "2 次小规模试验", "工作进程中断")):
        story = show(history, language)
        assert words in story
        assert end in story
        assert "lr-up" in story
        assert "the worker was killed" in story


def test_trials_of_a_dry_run_that_failed_after_them_are_recorded_too(after_data):
    light_run.HOW["while_running"] = tried_and_failed
    light_run.passage(after_data)
    [event] = events_of(after_data)
    assert (event.stage, event.attempt, event.name, event.loss_after) == ("dry_run", 1, "base", 4.0)
