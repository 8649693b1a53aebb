"""What was not shown, approved or run here cannot enter a run: files changed, folders put in, raw data replaced."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.support.cli import called, gatewright

Copy = Callable[[Path], Path]


def test_a_changed_spec_stops_the_run_before_it_judges_anything(before_train: Path, copy_of: Copy) -> None:
    project = copy_of(before_train)
    assert called("approve", "--as", "me", cwd=project).code == 0
    spec = project / "runs/first/spec.json"
    spec.write_bytes(spec.read_bytes().replace(b'"blocking":false', b'"blocking":true', 1))
    answer = gatewright("resume", "--json", cwd=project)
    assert answer.code == 6
    assert "spec.json" in answer.json["error"]["message"]


def test_the_html_report_is_part_of_what_was_shown(before_train: Path, copy_of: Copy) -> None:
    project = copy_of(before_train)
    report = project / "runs/first/03-stress_test/001/report.html"
    report.write_text("<h1>all is well</h1>", encoding="utf-8")
    answer = called("approve", "--as", "me", "--json", cwd=project)
    assert answer.code == 6
    assert "report.html" in answer.json["error"]["message"]
    assert called("audit", "verify", cwd=project).code == 7
    assert called("reject", "--as", "me", "-m", "its report was replaced", cwd=project).code == 0


def test_a_folder_that_this_run_did_not_make_is_never_adopted(before_train: Path, copy_of: Copy) -> None:
    project = copy_of(before_train)
    back = called("rework", "--as", "me", "--stage", "stress_test", "-m", "measure again", cwd=project)
    assert back.code == 0, back.err
    assert gatewright("resume", cwd=project).code == 3
    assert called("approve", "--as", "me", cwd=project).code == 0
    shutil.copytree(project / "runs/first/03-stress_test/001", project / "runs/first/03-stress_test/002")
    answer = gatewright("resume", "--json", cwd=project)
    assert answer.code == 6
    assert "002" in answer.json["error"]["message"]


def test_raw_files_changed_after_the_first_gate_need_a_new_approval(prefect_server: str, tmp_path: Path) -> None:
    project = tmp_path / "demo"
    assert gatewright("init", project, "--example", "cnc-repair", "--lang", "zh", cwd=tmp_path).code == 0
    assert gatewright("run", ".", "--run-id", "first", cwd=project).code == 3
    shown = json.loads((project / "runs/first/gates/01-data/001/gate.json").read_bytes())["inputs"]
    assert "raw:raw/notes.md" in shown
    assert called("approve", "--as", "me", cwd=project).code == 0
    notes = project / "raw/notes.md"
    notes.write_bytes(notes.read_bytes() + b"\n- one more line\n")
    answer = gatewright("resume", "--json", cwd=project)
    assert answer.code == 1
    assert "raw/notes.md" in answer.json["error"]["message"]
    assert gatewright("resume", "--anew", cwd=project).code == 3
    gate = called("status", "--json", cwd=project).json["gate"]
    assert (gate["id"], gate["round"]) == ("first.data.2", 2)


def test_a_cap_holds_for_numbers_of_any_size(before_train: Path, copy_of: Copy) -> None:
    project = copy_of(before_train)
    back = called("rework", "--as", "me", "--stage", "stress_test", "-m", "more steps", cwd=project)
    assert back.code == 0, back.err
    assert gatewright("resume", cwd=project).code == 3
    for steps in ("41", "9007199254740993", "9" * 40):
        answer = called("approve", "--as", "me", "--set", f"max_steps={steps}", "--json", cwd=project)
        assert (answer.code, answer.json["error"]["kind"]) == (6, "GuardRefused"), answer.out
