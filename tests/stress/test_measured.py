"""What the ladder took reaches the next gate, the ledger and the audit; nothing else does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.audit.history import read_history
from flows.audit.measured import unmeasured
from flows.audit.story import KEEP, show
from flows.measured import new_rungs, proposals_as_run
from flows.state import fold
from flows.workspace import Workspace, frozen_spec
from specs.canonical import canonical_bytes, plain
from specs.errors import Refused
from specs.events import AttemptReserved
from specs.files import write_bytes
from specs.parameters import TrainingConfiguration
from tasks.stress.climbing import write_rungs
from tasks.stress.ladder import Rung
from tests.support import light_run

TAKEN = {"micro_batch": 2, "gradient_accumulation": 4}
RUNGS = [
    Rung(number=1, rung="approved", changes={}, outcome="out_of_memory", why="can't allocate memory"),
    Rung(number=2, rung="processes", changes={}, outcome="named", why="no other process holds memory of the device"),
    Rung(number=3, rung="micro_batch", changes=TAKEN, outcome="runs", peak_bytes=5, usable_bytes=10, taken=True),
]


def climbed(context) -> None:
    """What a stress test leaves whose ladder took something."""
    if context.stage != "stress_test":
        return
    approved = TrainingConfiguration.model_validate(context.parameters["training"])
    measured = TrainingConfiguration.model_validate(approved.model_dump(mode="json") | TAKEN)
    write_bytes(context.artifacts / "configuration.json", canonical_bytes(measured))
    write_rungs(context.artifacts / "ladder.jsonl", RUNGS)


@pytest.fixture
def at_train(tmp_path: Path, light_stages) -> Workspace:
    """A run at the gate of `train`, after a ladder."""
    light_run.HOW["while_running"] = climbed
    project = light_run.make_project(tmp_path / "p")
    workspace = light_run.begin(project)
    try:
        for _ in range(3):
            light_run.passage(workspace)
            light_run.decide(workspace)
        light_run.passage(workspace)
        yield workspace
    finally:
        light_run.HOW["while_running"] = lambda context: None


def ledger_and_state(workspace: Workspace):
    ledger = light_run.ledger_of_run(workspace)
    return ledger, fold(ledger.events(workspace.run))


def test_every_rung_is_an_event_before_the_attempt_is_published_and_is_told(at_train):
    ledger, _ = ledger_and_state(at_train)
    kinds = [event.kind for event in ledger.events(at_train.run)]
    assert kinds.count("memory.rung") == 3
    last = len(kinds) - 1 - kinds[::-1].index("memory.rung")
    assert kinds[last + 1 :].index("attempt.published") < kinds[last + 1 :].index("verdicts.recorded")
    folder = at_train.attempt("stress_test", 1) / "artifacts"
    assert new_rungs(ledger, at_train, "stress_test", 1, folder) == []
    for language, words in (("en", "memory ran out; the ladder had 3 rungs"), ("zh", "内存阶梯共 3 级")):
        story = show(read_history(ledger, at_train.run, at_train.folder, keep=KEEP), language)
        assert words in story
        assert "micro_batch = 2" in story


def test_the_next_gate_gets_the_configuration_that_was_measured_with_a_reason_for_each_change(at_train):
    _, state = ledger_and_state(at_train)
    found = proposals_as_run(at_train, state, frozen_spec(at_train))["stress_test"]
    assert found.parameters["training"]["micro_batch"] == 2
    reasons = {r.parameter: r for r in found.reasons if r.source == "ladder"}
    assert reasons.keys() == {"training.micro_batch", "training.gradient_accumulation"}
    assert "memory ran out in the stress test with 1" in reasons["training.micro_batch"].text


def test_a_configuration_that_was_changed_after_publication_is_refused(at_train):
    _, state = ledger_and_state(at_train)
    path = at_train.attempt("stress_test", 1) / "artifacts" / "configuration.json"
    changed = json.loads(path.read_bytes()) | {"lr": 0.5}
    path.write_bytes(canonical_bytes(changed))
    with pytest.raises(Refused, match="not what was published"):
        proposals_as_run(at_train, state, frozen_spec(at_train))


def test_a_training_with_other_settings_than_measured_is_seen_by_the_audit(at_train):
    ledger, _ = ledger_and_state(at_train)
    light_run.decide(at_train)  # the light proposer proposes the defaults, not what was measured
    history = read_history(ledger, at_train.run, at_train.folder)
    state = fold(ledger.events(at_train.run))
    reserved = AttemptReserved(stage="train", attempt=1, parameters="0" * 64)
    faults = unmeasured(history, state, reserved)
    assert faults == ["gradient_accumulation is 8, measured was 4", "micro_batch is 1, measured was 2"]
    assert plain(TAKEN) == TAKEN
