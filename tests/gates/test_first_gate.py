"""The first gate stays closed while its sheet leaves something open, and opens by an override or a better spec."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.amending import amend, can_amend, settle
from flows.audit import verify
from flows.ledger import Ledger
from flows.ledgers import ledger_of_run
from flows.state import fold
from flows.steps import RunStage
from flows.workspace import frozen_spec
from specs.canonical import sha256_file
from specs.errors import PolicyRefused, Refused
from specs.policy import Policy
from specs.proposals import Finding
from tests.audit.manipulations import Target, failed, rebuilt
from tests.support import light_run
from tests.support.cli import called
from tests.support.run_maker import RunMaker

LEFT = Finding(rule="goal-uncovered", blocking=True, text="the goal names boilers, no source does", sentence="add one")
WARNS = Finding(rule="budget-missing", blocking=False, text="no budget", sentence="budget: {hours: 4}")
TEAM = Policy.model_validate({"solo": False, "approvers": [{"id": "li"}, {"id": "wang", "may_override": True}]})


@pytest.fixture
def blocked(tmp_path: Path) -> RunMaker:
    """A run at its first gate, whose sheet has a blocking finding and a warning."""
    maker = RunMaker(tmp_path, policy=TEAM)
    maker.findings = [LEFT, WARNS]
    return maker.start().until_gate()


def test_the_gate_carries_what_blocks_it_and_approval_is_refused_with_the_sentence(blocked: RunMaker):
    gate = blocked.state.gate
    assert gate is not None
    assert gate.blocked
    assert gate.findings == (LEFT,)
    with pytest.raises(PolicyRefused) as refused:
        blocked.decide(actor="li")
    assert LEFT.text in refused.value.message
    assert LEFT.sentence in refused.value.message
    assert WARNS.text not in refused.value.message
    assert "--anew" in refused.value.hint
    assert "--override" in refused.value.hint


def test_only_who_may_overrides_it_and_says_why(blocked: RunMaker):
    with pytest.raises(PolicyRefused, match="may not override what the task sheet leaves open"):
        blocked.decide(actor="li", override=True)
    with pytest.raises(PolicyRefused, match="reason"):
        blocked.decide(actor="wang", override=True, comment=" ")
    blocked.decide(actor="wang", override=True, comment="boilers come next month")
    assert isinstance(blocked.next, RunStage)
    assert verify(blocked.ledger, "r1", blocked.run_dir).parts["authority"].ok


def test_warnings_alone_keep_no_gate_closed(tmp_path: Path):
    maker = RunMaker(tmp_path)
    maker.findings = [WARNS]
    maker.start().until_gate()
    maker.decide()
    assert isinstance(maker.next, RunStage)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["payload"].update(findings=[], blocked=False),
        lambda body: body["payload"].update(findings=None, blocked=False),
        lambda body: body["payload"].update(blocked=False),
        lambda body: body["payload"]["findings"][0].update(text="nothing much"),
    ],
    ids=["taken out", "not looked at", "not blocking", "other words"],
)
def test_an_audit_finds_findings_that_were_taken_off_the_gate(blocked: RunMaker, change):
    blocked.ledger.close()
    target = Target(blocked.project_dir)
    rebuilt("gate.opened", change)(target)
    checks = {check for part, check in failed(target) if part == "authority"}
    assert any("sheet leaves open" in check for check in checks)


# -- a better spec


@pytest.fixture
def waiting(tmp_path: Path):
    """A light run that waits at its first gate."""
    with light_run.installed():
        workspace = light_run.begin(light_run.make_project(tmp_path / "light"))
        assert light_run.passage(workspace).ending == "waiting"
        yield workspace


def rewrite(workspace, old: str, new: str) -> None:
    file = workspace.project_dir / "project.yaml"
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")


def test_a_changed_spec_is_taken_in_by_a_new_round_and_the_run_goes_to_its_end(waiting):
    before = sha256_file(waiting.folder / "spec.json")
    with (waiting.project_dir / "project.yaml").open("a", encoding="utf-8") as file:
        file.write("goal: quiet spindles\n")
    ledger = ledger_of_run(waiting)
    assert amend(waiting, ledger) == ["goal"]
    state = fold(ledger.events("r1"))
    assert (state.state, state.goal.round, state.open_gates) == ("running", 2, [])
    assert frozen_spec(waiting).goal == "quiet spindles"
    assert sha256_file(waiting.folder / "specs" / f"{before}.json") == before
    assert light_run.passage(waiting).ending == "waiting"
    assert light_run.complete(waiting.project_dir).ending == "finished"
    report = verify(ledger_of_run(waiting), "r1", waiting.folder)
    assert report.ok, [s.detail for p in report.parts.values() for s in p.steps if not s.ok]


def test_what_was_shown_before_stays_verifiable_and_a_changed_old_spec_is_found(waiting):
    before = sha256_file(waiting.folder / "spec.json")
    rewrite(waiting, "project: light", "project: light\ngoal: quiet spindles")
    amend(waiting, ledger_of_run(waiting))
    light_run.complete(waiting.project_dir)
    old = waiting.folder / "specs" / f"{before}.json"
    old.write_bytes(old.read_bytes() + b" ")
    assert not verify(ledger_of_run(waiting), "r1", waiting.folder).parts["integrity"].ok


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("policy: {approvers: [{id: mallory}]}\n", "policy"),
        ("ledger: other.db\n", "ledger"),
        ("rehearsal: 0.5\n", "rehearsal"),
        ("added_stages: {s: {command: [echo], metrics: {m: {unit: count, self_reported: true}}}}\n", "stages"),
    ],
)
def test_a_run_keeps_policy_ledger_stages_and_whether_it_is_a_rehearsal(waiting, more, named):
    with (waiting.project_dir / "project.yaml").open("a", encoding="utf-8") as file:
        file.write(more)
    ledger = ledger_of_run(waiting)
    count = len(ledger.events("r1"))
    with pytest.raises(Refused, match=named):
        amend(waiting, ledger)
    assert len(ledger.events("r1")) == count


def test_nothing_is_taken_in_once_something_was_approved(waiting):
    ledger: Ledger = ledger_of_run(waiting)
    assert can_amend(fold(ledger.events("r1")))
    light_run.decide(waiting)
    assert not can_amend(fold(ledger.events("r1")))
    assert light_run.passage(waiting).ending == "waiting"
    assert not can_amend(fold(ledger.events("r1")))


def test_a_crash_between_the_record_and_the_file_is_put_right(waiting):
    kept = (waiting.folder / "spec.json").read_bytes()
    rewrite(waiting, "project: light", "project: light\ngoal: quiet spindles")
    ledger = ledger_of_run(waiting)
    amend(waiting, ledger)
    (waiting.folder / "spec.json").write_bytes(kept)
    created = fold(ledger.events("r1")).created
    assert created is not None
    settle(waiting, created.spec)
    assert json.loads((waiting.folder / "spec.json").read_bytes())["goal"] == "quiet spindles"


@pytest.mark.parametrize("options", [("--write",), ("--check",), ("--to", "sheet.yaml")])
def test_a_word_beside_the_file_of_a_sheet_is_not_taken_as_its_goal(tmp_path: Path, options):
    project = light_run.make_project(tmp_path / "p")
    refused = called("decompose", str(project), "sheet.yaml", *options, cwd=tmp_path)
    assert refused.code == 2
    assert "taken as a goal" in refused.err
    assert "--to FILE" in refused.err
    assert not list(tmp_path.rglob("*sheet.yaml"))
