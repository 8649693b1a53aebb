"""A training that its early judgement ended goes on when somebody who may says so, and not before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flows.audit import verify
from flows.audit.history import read_history
from flows.audit.story import KEEP, show
from flows.ledgers import ledger_of_run
from flows.overruling import about, overrule
from flows.starting import start_run
from flows.state import fold
from flows.workspace import Workspace
from specs.errors import DecisionRefused, InputError, PolicyRefused, ResumeRefused, TrainingError
from specs.events import JudgementOverruled, ResumeConfirmed
from specs.files import write_json
from specs.resuming import Changed, table, unconfirmed
from specs.stages import StageContext
from tasks.training.changes import DIFFERENCES, write_rows
from tasks.training.judgement import Judgement
from tests.support import light_run

pytestmark = pytest.mark.usefixtures("light_stages")

TWO = """policy:
  solo: false
  approvers: [{id: li}, {id: wang, may_override: true}]
"""


def ended_by(verdict: str) -> Judgement:
    return Judgement.model_validate(
        {
            "step": 7,
            "epoch": 1,
            "samples": 8,
            "too_long": 0,
            "before": 2.0,
            "now": 2.5,
            "change": 0.5,
            "standard_error": 0.1,
            "bound": 0.0,
            "verdict": verdict,
        }
    )


@pytest.fixture(params=["", TWO], ids=["solo", "team"])
def ended(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A run whose training was ended by its early judgement; it goes on once a person said so."""

    def judged(context: StageContext) -> None:
        if context.stage == "train" and not context.go_on:
            write_json(context.checkpoints_dir / "worker" / "judgement.json", ended_by("stop"))
            raise TrainingError("early judgement: stop; the loss rises")

    monkeypatch.setitem(light_run.HOW, "while_running", judged)
    monkeypatch.setitem(light_run.HOW, "workers", False)
    project = light_run.make_project(tmp_path / "light", more=request.param)
    workspace = start_run(project, "r1")
    who = "wang" if request.param else "me"
    while light_run.passage(workspace).ending == "waiting":
        light_run.decide(workspace, actor=who)
    assert fold(ledger_of_run(workspace).events("r1")).state == "failed"
    return workspace


def is_team(workspace: Workspace) -> bool:
    return "wang" in (workspace.project_dir / "project.yaml").read_text()


def test_it_goes_on_once_the_decision_is_recorded_and_a_plain_resume_ends_again(ended):
    ledger, who = ledger_of_run(ended), "wang" if is_team(ended) else "me"
    assert light_run.passage(ended).ending == "failed"
    event = overrule(ended, ledger, who, "the loss was measured on the wrong texts", authentication="terminal")
    assert (event.actor, event.payload["verdict"], event.payload["attempt"]) == (who, "stop", 2)
    session = light_run.passage(ended)
    assert session.ending == "waiting", session.error
    state = fold(ledger.events("r1"))
    assert state.gate is not None
    assert (state.gate.name, state.attempts["train"][-1].state) == ("evaluate", "published")
    report = verify(ledger, "r1", ended.folder)
    assert report.ok, [s for s in report.authority.steps if not s.ok]
    story = show(read_history(ledger, "r1", ended.folder, keep=KEEP))
    assert f"{who} let it go on although its early judgement said stop" in story


def test_who_may_not_override_is_refused_and_so_is_a_decision_without_a_reason(ended):
    ledger = ledger_of_run(ended)
    who = "wang" if is_team(ended) else "me"
    with pytest.raises(InputError, match="needs a reason"):
        overrule(ended, ledger, who, " ", authentication="terminal")
    with pytest.raises(PolicyRefused, match="is not an approver"):
        overrule(ended, ledger, "nobody", "why not", authentication="terminal")
    with pytest.raises(PolicyRefused, match="not a person"):
        overrule(ended, ledger, "gatewright", "why not", authentication="terminal")
    if is_team(ended):
        with pytest.raises(PolicyRefused, match="may not override"):
            overrule(ended, ledger, "li", "why not", authentication="terminal")


def test_nothing_goes_on_that_was_not_ended(ended):
    ledger, who = ledger_of_run(ended), "wang" if is_team(ended) else "me"
    overrule(ended, ledger, who, "seen", authentication="terminal")
    light_run.passage(ended)
    with pytest.raises(DecisionRefused, match="no training of run r1 was ended by its early judgement"):
        overrule(ended, ledger, who, "seen", authentication="terminal")


ROWS = [
    Changed(what="device", was="AVX512", now="AVX2"),
    Changed(what="versions.numpy", was="1.0", now="2.0"),
]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Workspace]:
    """Makes a run whose training was refused because this differs; it goes on once all of it is confirmed."""

    def make(rows: list[Changed]) -> Workspace:
        def resumed(context: StageContext) -> None:
            if context.stage == "train" and (left := unconfirmed(rows, context.confirmed)):
                write_rows(context.checkpoints_dir / "worker" / DIFFERENCES, rows)
                raise ResumeRefused("the checkpoint was written under other settings\n" + "\n".join(table(left)))

        monkeypatch.setitem(light_run.HOW, "while_running", resumed)
        monkeypatch.setitem(light_run.HOW, "workers", False)
        workspace = start_run(light_run.make_project(tmp_path / "light"), "r1")
        while light_run.passage(workspace).ending == "waiting":
            light_run.decide(workspace)
        return workspace

    return make


def test_another_device_or_library_is_gone_on_with_once_a_person_confirmed_the_table_that_was_shown(refused):
    workspace = refused(ROWS)
    ledger = ledger_of_run(workspace)
    shown = about(workspace, ledger)
    assert any("versions.numpy  1.0     2.0" in line for line in shown)
    with pytest.raises(DecisionRefused, match="for another reason meanwhile"):
        overrule(workspace, ledger, "me", "same card", authentication="terminal", shown=shown[:-1])
    assert light_run.passage(workspace).ending == "failed"
    event = overrule(workspace, ledger, "me", "the losses agree", authentication="terminal", shown=shown)
    assert (event.kind, event.payload["differences"]) == ("resume.confirmed", [row.model_dump() for row in ROWS])
    assert light_run.passage(workspace).ending == "waiting"
    assert fold(ledger.events("r1")).attempts["train"][-1].state == "published"
    report = verify(ledger, "r1", workspace.folder)
    assert report.ok, [s for s in report.authority.steps if not s.ok]
    for language, told in (("en", "me let it go on with another device"), ("zh", "me 确认在其他设备或库版本上继续")):
        story = show(read_history(ledger, "r1", workspace.folder, keep=KEEP), language)
        assert told in story
        assert "versions.numpy: 1.0 -> 2.0" in story


def test_what_makes_it_another_training_cannot_be_confirmed(refused):
    workspace = refused([*ROWS, Changed(what="samples_sha256", was="a", now="b")])
    with pytest.raises(DecisionRefused, match="another training, which nobody can confirm") as caught:
        overrule(workspace, ledger_of_run(workspace), "me", "why not", authentication="terminal")
    assert "samples_sha256" in caught.value.message
    assert "numpy" not in caught.value.message


def test_a_confirmation_by_somebody_who_may_not_is_found_by_the_audit(refused):
    workspace = refused(ROWS)
    ledger = ledger_of_run(workspace)
    attempt = fold(ledger.events("r1")).attempts["train"][-1]
    said = ResumeConfirmed(
        stage="train",
        attempt=attempt.number,
        parameters=attempt.parameters,
        differences=ROWS,
        reason="mine",
        authentication="terminal",
    )
    ledger.append("r1", said, "mallory")
    report = verify(ledger, "r1", workspace.folder)
    assert any("'mallory' is not an approver" in step.detail for step in report.authority.steps)


def test_a_record_by_somebody_who_may_not_is_found_by_the_audit(ended):
    ledger = ledger_of_run(ended)
    attempt = fold(ledger.events("r1")).attempts["train"][-1]
    said = JudgementOverruled(
        stage="train",
        attempt=attempt.number,
        parameters=attempt.parameters,
        verdict="stop",
        reason="mine",
        authentication="terminal",
    )
    ledger.append("r1", said, "mallory")
    report = verify(ledger, "r1", ended.folder)
    assert not report.authority.ok
    assert any("'mallory' is not an approver" in step.detail for step in report.authority.steps)
