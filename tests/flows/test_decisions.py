"""Decisions through the command line: refused loudly when they cannot apply, one per gate, and what they lead to."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from tests.support.cli import called, gatewright


def test_early_late_unknown_and_stale_decisions_are_refused_with_exit_code_6(before_train, copy_of) -> None:
    project = copy_of(before_train)
    stranger = called("approve", "--as", "mallory", "--json", cwd=project)
    assert (stranger.code, stranger.json["error"]["kind"]) == (6, "PolicyRefused")
    agent = called("approve", "--as", "gatewright", "--json", cwd=project)
    assert agent.code == 6
    silent = called("reject", "--as", "me", "--json", cwd=project)
    assert silent.code == 6
    stale = called("approve", "--as", "me", "--digest", "0" * 64, "--json", cwd=project)
    assert (stale.code, stale.json["error"]["kind"]) == (6, "DecisionRefused")
    assert called("approve", "--as", "me", cwd=project).code == 0
    late = called("reject", "--as", "me", "-m", "too late", "--json", cwd=project)
    assert late.code == 6
    assert "approve" in late.json["error"]["message"]
    assert "me" in late.json["error"]["message"]


def test_one_changed_byte_of_what_was_shown_closes_the_gate(before_train, copy_of) -> None:
    project = copy_of(before_train)
    report = project / "runs/first/03-stress_test/001/report.md"
    report.write_bytes(report.read_bytes() + b" ")
    answer = called("approve", "--as", "me", "--json", cwd=project)
    assert answer.code == 6
    assert "report.md" in answer.json["error"]["message"]


def test_of_two_people_deciding_at_once_exactly_one_is_recorded(before_train, copy_of) -> None:
    project = copy_of(before_train)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _n: gatewright("approve", "--as", "me", "--json", cwd=project), range(4)))
    assert sorted(a.code for a in answers) == [0, 6, 6, 6]


def test_train_cannot_be_approved_with_a_setting_that_no_stress_test_measured(before_train, copy_of) -> None:
    project = copy_of(before_train)
    answer = called("approve", "--as", "me", "--set", "lr=1e-4", "--json", cwd=project)
    assert (answer.code, answer.json["error"]["kind"]) == (6, "GuardRefused")
    assert "lr" in answer.json["error"]["message"]


def test_rework_of_an_earlier_stage_with_an_edit_runs_it_again_and_supersedes(before_train, copy_of) -> None:
    project = copy_of(before_train)
    back = called("rework", "--as", "me", "--stage", "stress_test", "-m", "try a smaller rate", cwd=project)
    assert back.code == 0, back.err
    assert gatewright("resume", "--json", cwd=project).code == 3
    status = called("status", "--json", cwd=project).json
    assert ".stress_test." in status["gate"]["id"]
    assert status["gate"]["round"] == 2
    edited = called("approve", "--as", "me", "--set", "lr=1e-4", "--json", cwd=project)
    assert edited.code == 0, edited.err
    assert edited.json["edits"] == {"training.lr": 1e-4}
    again = gatewright("resume", "--json", cwd=project)
    assert again.code == 3, again.err
    proposal = json.loads((project / "runs/first/03-stress_test/002/proposal.json").read_bytes())
    assert proposal["parameters"]["training"]["lr"] == 1e-4
    assert proposal["edited_by"] == "me"
    assert called("audit", "verify", "--json", cwd=project).json["integrity"]["ok"]


def test_a_rejected_run_is_over_and_says_so_with_exit_code_5(before_train, copy_of) -> None:
    project = copy_of(before_train)
    assert called("reject", "--as", "me", "-m", "the data is wrong", cwd=project).code == 0
    assert gatewright("resume", cwd=project).code == 5
    assert gatewright("resume", cwd=project).code == 5
    assert called("approve", "--as", "me", cwd=project).code == 6
    assert called("status", "--json", cwd=project).json["state"] == "rejected"


def test_a_second_run_of_a_project_with_an_open_one_is_refused(before_train, copy_of) -> None:
    project = copy_of(before_train)
    answer = gatewright("run", ".", "--json", cwd=project)
    assert (answer.code, answer.json["error"]["kind"]) == (6, "RunOpen")


def test_waiting_is_answered_with_exit_code_3_and_three_lines(before_train, copy_of) -> None:
    answer = gatewright("resume", cwd=copy_of(before_train))
    assert answer.code == 3
    lines = [line for line in answer.out.splitlines() if line.startswith("  ")]
    assert len(lines) == 3
    assert "approve" in lines[1]


def test_gates_runs_and_review_show_the_open_gate(before_train, copy_of) -> None:
    project = copy_of(before_train)
    gates = called("gates", "--json", cwd=project).json["gates"]
    assert [g["run"] for g in gates] == ["first"]
    assert called("runs", "--json", cwd=project).json["runs"][0]["state"] == "waiting"
    review = called("review", cwd=project)
    assert review.code == 0
    assert "gatewright approve" in review.out
