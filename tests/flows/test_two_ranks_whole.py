"""An earnest run over two ranks through the command line: rehearsed, approved, killed in training, resumed, released.

It has small trials in its dry run and general text in its evaluation, so that both are seen at real gates.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import advance, gatewright
from tests.support.runs import adapter_sha256, kill_family, start, wait_for_checkpoint

pytestmark = pytest.mark.slow

MORE = """
launcher: {processes: 2}
general_text: {path: general, passages: 8, tokens: 64, at_most: 9}
"""
TRIALS = 'dry_run: {model: "package:gatewright-tiny", trials: {vary: [lr], steps: 4, repeats: 2}}'
GENERAL = (
    "第{n}天清晨，河边的集市渐渐热闹起来，卖花的老人把一束束百合摆在竹篮里，"
    "过路的孩子停下脚步，数着桥上第{m}盏还没有熄灭的灯。"
)


@pytest.fixture(scope="module")
def before_train(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rehearsal to its end, and an earnest run up to the open gate before train."""
    project = tmp_path_factory.mktemp("ranks") / "demo"
    made = gatewright("init", project, "--example", "cnc-repair", "--lang", "zh", cwd=project.parent)
    assert made.code == 0, made.err
    spec = (project / "project.yaml").read_text(encoding="utf-8")
    old = 'dry_run: {model: "package:gatewright-tiny"}'
    assert old in spec
    (project / "project.yaml").write_text(spec.replace(old, TRIALS) + MORE, encoding="utf-8")
    (project / "general").mkdir()
    paragraphs = [GENERAL.format(n=n, m=7 * n % 31) for n in range(1, 31)]
    (project / "general" / "texts.txt").write_text("\n\n".join(paragraphs), encoding="utf-8")
    rehearsal = gatewright("run", ".", "--run-id", "small", "--rehearse", "0.05", "--json", cwd=project)
    assert rehearsal.code == 3, rehearsal.err
    ended = advance(project)
    assert ended.code == 0, ended.err
    first = gatewright("run", ".", "--run-id", "first", "--json", cwd=project)
    assert first.code == 3, first.err
    stopped = advance(project, until_gate="train")
    assert stopped.code == 3, stopped.err
    return project


@pytest.fixture(scope="module")
def finished(before_train: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run carried on to its release in a copy, never cut off."""
    project = tmp_path_factory.mktemp("straight") / "demo"
    shutil.copytree(before_train, project)
    ended = advance(project)
    assert ended.code == 0, ended.err
    return project


def artifact(project: Path, stage: str, name: str) -> list[dict[str, Any]]:
    text = (project / "runs" / "first" / stage / "001" / "artifacts" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_two_ranks_killed_in_training_and_resumed_end_with_the_same_release(before_train, finished, copy_of) -> None:
    project = copy_of(before_train)
    assert gatewright("approve", "--as", "me", cwd=project).code == 0
    process = start(project, "resume")
    wait_for_checkpoint(project, process, 10)
    kill_family(process)
    ended = advance(project)
    assert ended.code == 0, ended.err
    assert adapter_sha256(project) == adapter_sha256(finished)
    for name in ("micro_batches.jsonl", "census.jsonl"):
        assert artifact(project, "04-train", name) == artifact(finished, "04-train", name)
    steps, straight = (artifact(p, "04-train", "metrics.jsonl") for p in (project, finished))
    assert [s["loss"] for s in steps] == [s["loss"] for s in straight]
    assert {line["rank"] for line in artifact(project, "04-train", "micro_batches.jsonl")} == {0, 1}
    sessions = artifact(project, "04-train", "sessions.jsonl")
    assert [s["ranks"] for s in sessions] == [2, 2]
    assert sessions[1]["from_step"] >= 10
    proof = artifact(project, "04-train", "continuity.jsonl")
    assert proof
    assert all(line["largest_difference"] == 0 for line in proof)
    for each in (project, finished):
        assert gatewright("audit", "verify", "first", "--json", cwd=each).code == 0
        assert gatewright("verify", "first", "--json", cwd=each).code == 0
        assert (each / "runs" / "first" / "release" / "manifest.json").is_file()


def test_trials_and_forgetting_are_shown_at_the_gates_in_the_language_of_the_project(finished) -> None:
    attempt = finished / "runs" / "first" / "02-dry_run" / "001"
    report = (attempt / "report.md").read_text(encoding="utf-8")
    assert "## 小规模试验" in report
    assert (attempt / "plots" / "trials.svg").is_file()
    evaluated = json.loads((finished / "runs" / "first" / "05-evaluate" / "001" / "evidence.json").read_bytes())
    assert evaluated["metrics"]["general_text_wrong"]["value"] == 0
    assert evaluated["metrics"]["general_text_loss_change"]["value"] is not None
    [verdict] = [v for v in evaluated["verdicts"] if v["metric"] == "general_text_loss_change"]
    assert (verdict["passed"], verdict["bound"]) == (True, 9)
    assert any("段通用文本测量遗忘" in note for note in evaluated["notes"])
