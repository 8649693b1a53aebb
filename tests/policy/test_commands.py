"""The commands of a team: what they answer in JSON, and with which exit code they refuse."""

from __future__ import annotations

import json
import os
import pwd
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli.app import app, load_groups
from flows.ledger import Ledger
from flows.ledger.upkeep import upkeep_of
from flows.workspace import ledger_url
from specs.loading import load_project
from specs.policy import Approver, Policy
from tests.support.run_maker import RunMaker

SPEC = """\
project: demo
base_model: package:gatewright-tiny
sources: [{kind: notes, path: notes.md}]
policy:
  solo: false
  approvers: [{id: li}, {id: wang, may_override: true}, {id: zhao, may_override: true}]
  quorum: 2
  authentication: token
  expires_after: 30d
"""


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GATEWRIGHT_TOKEN", raising=False)
    load_groups()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path / "demo"
    project.mkdir()
    (project / "project.yaml").write_text(SPEC, encoding="utf-8")
    return project


@pytest.fixture
def maker(folder: Path) -> RunMaker:
    policy = load_project(folder).spec.policy
    maker = RunMaker(folder, policy=policy)
    maker.clock.at = datetime.now(UTC)  # the commands look at the real clock, and gates expire by it
    return maker.start().until_gate("data")


def ask(folder: Path, *words: str, code: int = 0, token: str = "") -> Any:
    """The JSON document that a command answers; `--project` is added where the command takes it."""
    place = [] if words[0] == "policy" else ["--project", str(folder)]
    environment = {"GATEWRIGHT_TOKEN": token} if token else {}
    done = CliRunner().invoke(app, [*words, *place, "--json"], env=environment, catch_exceptions=False)
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_explain_answers_for_every_gate(folder: Path):
    document = ask(folder, "policy", "explain", str(folder))
    assert [gate["gate"] for gate in document["gates"]] == [
        "data", "dry_run", "stress_test", "train", "evaluate", "release",
    ]  # fmt: skip
    train = document["gates"][3]
    assert (train["quorum"], train["authentication"], train["expires_after_s"]) == (2, "token", 30 * 86400)
    assert train["reviewers"] == ["li", "wang", "zhao"]
    assert train["may_override"] == ["wang", "zhao"]
    assert train["may_edit"] == ["li", "wang", "zhao"]
    assert document["pinned"] is False
    assert document["policy"] == load_project(folder).spec.policy.sha256


def test_simulate_says_every_rule_that_speaks(folder: Path):
    words = ["policy", "simulate", str(folder), "--as", "li", "--decision"]
    accepted = ask(folder, *words, "approve", "--authentication", "token")
    assert (accepted["effect"], accepted["waits_for"]) == ("counts", ["wang", "zhao"])
    last = ask(folder, *words, "approve", "--authentication", "token", "--approved-by", "zhao")
    assert last["effect"] == "decides"
    edit = ask(folder, *words, "approve", "--authentication", "token", "--set", "lr=1")
    assert (edit["effect"], edit["waits_for"]) == ("amends", ["wang", "zhao"])
    refused = ask(folder, *words, "approve", "--blocked", "--edited-by", "li", code=6)
    assert refused["accepted"] is False
    assert [r["rule"] for r in refused["rules"] if not r["ok"]] == [
        "authentication", "override", "override", "self_approval",
    ]  # fmt: skip
    assert all(r["way_out"] for r in refused["rules"] if not r["ok"])
    for wrong in (["aprove"], ["approve", "--gate", "trian"], ["approve", "--authentication", "voice"]):
        assert "does not exist" in ask(folder, *words, *wrong, code=2)["error"]["message"]


def test_a_gate_is_decided_by_the_tokens_of_two_people(maker: RunMaker):
    folder = maker.project_dir
    li, wang = (ask(folder, "token", "new", "--as", who)["token"] for who in ("li", "wang"))
    claim = ask(folder, "approve", "r1", "--as", "li", code=6)["error"]
    assert "needs token, and this decision is unauthenticated" in claim["message"]
    assert "GATEWRIGHT_TOKEN" in claim["hint"]
    borrowed = ask(folder, "approve", "r1", "--as", "li", token=wang, code=6)["error"]
    assert "is of 'wang', the decision is by 'li'" in borrowed["message"]
    first = ask(folder, "approve", "r1", "--as", "li", token=li)
    assert (first["kind"], first["approved_by"], first["waits_for"]) == ("approval.recorded", ["li"], ["wang", "zhao"])
    status = ask(folder, "status", "r1")
    assert status["state"] == "waiting"
    assert {k: status["gate"][k] for k in ("quorum", "approved_by", "waits_for")} == {
        "quorum": 2, "approved_by": ["li"], "waits_for": ["wang", "zhao"],
    }  # fmt: skip
    double = ask(folder, "approve", "r1", "--as", "li", token=li, code=6)["error"]
    assert "approved gate data round 1 already" in double["message"]
    second = ask(folder, "approve", "r1", "--as", "wang", token=wang)
    assert (second["kind"], second["authentication"]) == ("decision.recorded", "token")
    kept = ask(folder, "token", "list")["tokens"]
    assert second["credential"] == kept[1]["id"]
    assert li not in json.dumps(kept) + json.dumps(ask(folder, "audit", "list", "r1"))
    assert ask(folder, "token", "revoke", kept[0]["id"])["approver"] == "li"
    assert [t["valid"] for t in ask(folder, "token", "list")["tokens"]] == [False, True]
    assert ask(folder, "token", "new", "--as", "mallory", code=2)["error"]["exit_code"] == 2


def test_under_a_pin_an_edited_policy_neither_starts_nor_decides(maker: RunMaker):
    folder = maker.project_dir
    token = ask(folder, "token", "new", "--as", "li")["token"]
    assert ask(folder, "policy", "pin", str(folder))["policy"] == maker.policy.sha256
    assert ask(folder, "policy", "explain", str(folder))["pinned"] is True
    assert ask(folder, "approve", "r1", "--as", "li", token=token)["kind"] == "approval.recorded"
    text = (folder / "project.yaml").read_text(encoding="utf-8")
    (folder / "project.yaml").write_text(text.replace("id: zhao", "id: mallory"), encoding="utf-8")
    refused = ask(folder, "policy", "explain", str(folder), code=6)["error"]
    assert "is not the one that was pinned" in refused["message"]
    ask(folder, "policy", "pin", str(folder), "--replace")  # who owns the pins changes his mind
    late = ask(folder, "approve", "r1", "--as", "wang", token=token, code=6)["error"]
    assert "is not the one that was pinned" in late["message"]
    assert ask(folder, "policy", "unpin", str(folder))["removed"] == 1


def test_a_run_that_a_person_closed_takes_no_decision(maker: RunMaker):
    from specs.events import RunClosed

    assert maker.lease is not None
    maker.ledger.append_all("r1", [RunClosed(reason="the folder was lost")], "li", maker.fence)
    error = ask(maker.project_dir, "reject", "r1", "--as", "li", "-m", "no", code=6)["error"]
    assert "has ended (rejected); its gates are closed" in error["message"]


def test_the_policy_in_words_names_equal_gates_once(folder: Path):
    from flows.explaining import explanation, lines

    document = {**explanation(Policy()), "pinned": False}
    english, chinese = lines(document, "en"), lines(document, "zh")
    assert english[0].startswith("solo: one person alone")
    assert english[3] == "data, dry_run, stress_test, train, evaluate, release:"
    assert len(english) == len(chinese)
    assert chinese[0].startswith("单人策略")


def test_at_the_prompt_an_edit_that_somebody_made_meanwhile_is_shown_before_it_can_be_approved(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from types import SimpleNamespace

    from flows.cli import asking
    from flows.standing import waiting
    from flows.workspace import Workspace

    people = [Approver(id=name) for name in ("li", "wang", "zhao")]
    maker = RunMaker(folder, policy=Policy(solo=False, approvers=people)).start().until_gate("data")

    def facts(workspace: Any, ledger: Any) -> Any:
        gate = maker.state.gate
        assert gate is not None
        stands = waiting(maker.policy, gate)
        rehearsal = {"workspace": workspace, "state": maker.state, "proposal": None}
        return SimpleNamespace(gate=gate, policy=maker.policy, waiting=stands, report=None, **rehearsal)

    typed = iter(["a", "wang", "a", "wang"])

    def prompt(text: str) -> str:
        answer = next(typed)
        if "who decides" in text and not maker.state.gate.amendments:  # type: ignore[union-attr]
            maker.decide(actor="li", edits={"seed": "7"})
        return answer

    shown: list[str] = []
    monkeypatch.setattr("flows.reviewing.gate_facts", facts)
    monkeypatch.setattr("flows.rehearsing.rehearsal_note", lambda *facts: "")
    monkeypatch.setattr("flows.reviewing.page", lambda found: shown.append(found.gate.digest) or "page")
    monkeypatch.setattr(asking, "_prompt", prompt)
    assert asking._ask(Workspace(folder, "r1"), maker.ledger) is True
    gate = maker.state.gate
    assert gate is not None
    assert gate.decision is not None
    assert (gate.decision.actor, gate.decision.digest) == ("wang", shown[1])
    assert shown[0] != shown[1]
    assert "li edited it" in capsys.readouterr().err


def test_making_and_revoking_a_token_is_recorded_with_the_account_of_the_system(folder: Path):
    made = ask(folder, "token", "new", "--as", "wang")
    ask(folder, "token", "revoke", made["id"])
    spec = load_project(folder).spec
    entries = upkeep_of(Ledger.open(ledger_url(folder, spec)), spec.project)
    assert [(e.kind, e.payload["token"], e.payload["approver"]) for e in entries] == [
        ("token.made", made["id"], "wang"),
        ("token.revoked", made["id"], "wang"),
    ]
    assert {e.actor for e in entries} == {pwd.getpwuid(os.getuid()).pw_name}
    assert made["token"] not in str(entries)
