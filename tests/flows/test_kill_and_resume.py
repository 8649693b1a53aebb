"""Whatever ends the process, the run goes on where it was and comes to the same adapter, bit for bit."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.support.cli import advance, called, gatewright
from tests.support.runs import adapter_sha256, kill_family, start, wait_for_checkpoint


def test_kill_9_in_the_middle_of_train_gives_the_same_adapter_bit_for_bit(before_train, finished, copy_of) -> None:
    project = copy_of(before_train)
    assert called("approve", "--as", "me", cwd=project).code == 0
    process = start(project, "resume")
    wait_for_checkpoint(project, process, 10)
    kill_family(process)
    assert not (project / "runs/first/04-train/001").exists()
    answer = gatewright("resume", "--json", cwd=project)
    assert answer.code == 3, answer.err
    assert adapter_sha256(project) == adapter_sha256(finished)
    kinds = [e["kind"] for e in called("audit", "list", "--json", cwd=project).json["events"]]
    assert "attempt.abandoned" in kinds
    assert called("audit", "verify", "--json", cwd=project).code == 0 or "running" in answer.out


@pytest.mark.slow
def test_the_parent_alone_killed_leaves_no_second_writer(before_train, finished, copy_of) -> None:
    project = copy_of(before_train)
    assert called("approve", "--as", "me", cwd=project).code == 0
    process = start(project, "resume")
    wait_for_checkpoint(project, process, 10)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    answer = gatewright("resume", "--json", cwd=project)
    assert answer.code == 3, answer.err
    assert adapter_sha256(project) == adapter_sha256(finished)


def test_a_second_process_is_refused_with_the_holder_and_a_stop_saves_and_goes_on_to_the_same_adapter(
    before_train, finished, copy_of
) -> None:
    project = copy_of(before_train)
    assert called("approve", "--as", "me", cwd=project).code == 0
    process = start(project, "resume")
    try:
        wait_for_checkpoint(project, process, 10)
        (worker,) = workers_of(process)
        worker.suspend()  # the training must not end before it is stopped, however slowly the second process starts
        second = gatewright("resume", "--json", cwd=project)
        worker.resume()
        assert second.code == 6
        assert str(process.pid) in second.json["error"]["message"]
        assert called("stop", "--json", cwd=project).code == 0
        saved_and_left(project, process)
    finally:
        if process.poll() is None:
            kill_family(process)
    answer = gatewright("resume", "--json", cwd=project)
    assert answer.code == 3, answer.err
    assert adapter_sha256(project) == adapter_sha256(finished)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_as_the_command_does(before_train, finished, copy_of, number) -> None:
    project = copy_of(before_train)
    assert called("approve", "--as", "me", cwd=project).code == 0
    process = start(project, "resume")
    wait_for_checkpoint(project, process, 10)
    process.send_signal(number)
    saved_and_left(project, process)
    answer = gatewright("resume", "--json", cwd=project)
    assert answer.code == 3, answer.err
    assert adapter_sha256(project) == adapter_sha256(finished)


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The training workers that a command has running."""
    below = psutil.Process(process.pid).children(recursive=True)
    return [child for child in below if "tasks.training.worker" in child.cmdline()]


def saved_and_left(project: Path, process: subprocess.Popen[str]) -> None:
    """The process ends as one that was asked to, and says how to go on."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "resume" in out + err
    assert called("status", "--json", cwd=project).json["state"] == "stopped"


def test_deleting_prefects_database_in_the_middle_changes_nothing(
    before_train, finished, copy_of, gatewright_home, tmp_path, monkeypatch
) -> None:
    from flows import server

    project, home = copy_of(before_train), tmp_path / "home"
    assert called("approve", "--as", "me", cwd=project).code == 0
    for name in ("models", "accounts"):  # all of the home but Prefect's part: its server, which others use, lives on
        shutil.copytree(gatewright_home / name, home / name)
    monkeypatch.setenv("GATEWRIGHT_HOME", str(home))
    try:
        ended = advance(project, until_gate="evaluate")
    finally:
        assert server.down() == ["server"]
    assert ended.code == 3, ended.err
    assert adapter_sha256(project) == adapter_sha256(finished)
    flow_runs = [
        e["payload"]["flow_run"]
        for e in called("audit", "list", "--json", cwd=project).json["events"]
        if e["kind"] == "prefect.attached"
    ]
    assert len(set(flow_runs)) > 1
    assert called("audit", "verify", cwd=project).code == 0
