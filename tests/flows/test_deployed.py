"""The same flow body on a worker: the process ends at the gate, and a decision brings the run back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.cli import gatewright


def wait_for_gate(project: Path, gate: str, timeout_s: float = 240) -> dict[str, object]:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        answer = gatewright("status", "--json", cwd=project)
        if answer.code == 0 and answer.json["state"] == "waiting" and f".{gate}." in answer.json["gate"]["id"]:
            return answer.json
        time.sleep(0.5)
    raise AssertionError(f"gate {gate} did not open: {answer.out}")


@pytest.mark.slow
def test_a_detached_run_suspends_at_each_gate_and_a_worker_goes_on_after_the_decision(
    prefect_server: str, tmp_path: Path
) -> None:
    project = tmp_path / "demo"
    assert gatewright("init", project, "--example", "cnc-repair", "--lang", "zh", cwd=tmp_path).code == 0
    up = gatewright("up", "--worker", "--json", cwd=tmp_path)
    assert up.code == 0, up.err
    started = gatewright("run", ".", "--run-id", "first", "--detach", "--json", cwd=project)
    assert started.code == 0, started.err
    wait_for_gate(project, "data")
    approved = gatewright("approve", "--as", "me", "--json", cwd=project)
    assert approved.json["worker_told"], approved.out
    wait_for_gate(project, "dry_run")
    leases = gatewright("audit", "list", "--kind", "lease.taken", "--json", cwd=project).json["events"]
    assert len({e["payload"]["owner"] for e in leases}) == 2, "the process ended at the gate and another one came back"
    attached = gatewright("audit", "list", "--kind", "prefect.attached", "--json", cwd=project).json["events"]
    assert {e["payload"]["reason"] for e in attached} == {"deployed"}
    assert len({e["payload"]["flow_run"] for e in attached}) == 1
