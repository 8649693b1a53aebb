"""The Chinese example with its three added stages, from raw files to a release, killed inside each of them."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import pytest

from tests.support.cli import gatewright
from tests.support.runs import kill_family, start

pytestmark = pytest.mark.slow

ORDER = ["data", "abbreviation_expansion", "expert_labelling", "dry_run", "stress_test", "train", "evaluate"]


def resume(project: Path, code: int = 3) -> None:
    answer = gatewright("resume", cwd=project)
    assert answer.code == code, answer.err


def approve(project: Path, gate: str) -> None:
    answer = gatewright("approve", "--as", "me", "--yes", "--gate", gate, cwd=project)
    assert answer.code == 0, answer.err


def kill_inside(project: Path, folder: str) -> None:
    """SIGKILL of the whole family while the worker of a stage is at work."""
    process = start(project, "resume")
    begun = project / "runs/first" / folder / "001.partial/logs/order.json"
    deadline = time.monotonic() + 600
    while not begun.is_file():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    kill_family(process)


def fill(project: Path) -> Path:
    """The sheet as a Chinese spreadsheet program saves it, every label given."""
    sheet = project / "runs/first/handed_out/03-expert_labelling/001/sheet.csv"
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = [{**row, "label": "正确"} for row in csv.DictReader(file)]
    with (project / "filled.csv").open("w", encoding="gb18030", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    assert len(rows) == 50
    return project / "filled.csv"


def test_three_added_stages_survive_kills_and_their_history_verifies(prefect_server: str, tmp_path: Path) -> None:
    project = tmp_path / "demo"
    made = gatewright("init", project, "--example", "cnc-repair", "--lang", "zh", "--added-stages", cwd=tmp_path)
    assert made.code == 0, made.err
    assert gatewright("run", ".", "--run-id", "first", cwd=project).code == 3
    approve(project, "data")
    resume(project)
    approve(project, "abbreviation_expansion")
    kill_inside(project, "02-abbreviation_expansion")
    resume(project)
    status = gatewright("status", "--json", cwd=project).json
    assert [gate["id"] for gate in status["open_gates"]] == ["first.expert_labelling.1", "first.dry_run.1"]
    approve(project, "expert_labelling")
    resume(project)
    handed = gatewright("hand-in", fill(project), "--as", "me", "--yes", cwd=project)
    assert handed.code == 0, handed.err
    kill_inside(project, "03-expert_labelling")
    resume(project)
    for gate in ("dry_run", "stress_test", "train", "evaluate"):
        approve(project, gate)
        resume(project)
    approve(project, "second_adapter")
    kill_inside(project, "08-second_adapter")
    resume(project)
    approve(project, "release")
    resume(project, code=0)
    stages = gatewright("status", "--json", cwd=project).json["stages"]
    assert [(s["name"], s["attempt"], s["state"]) for s in stages] == [
        (name, 1, "published") for name in [*ORDER, "second_adapter"]
    ]
    assert gatewright("audit", "verify", cwd=project).code == 0
    assert gatewright("verify", "first", cwd=project).code == 0
    assert gatewright("audit", "export", "bundle.zip", "first", cwd=project).code == 0
    assert gatewright("audit", "verify", "--bundle", "bundle.zip", cwd=project).code == 0
