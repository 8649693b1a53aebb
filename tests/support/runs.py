"""Start, watch and kill a run in processes of its own."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil


def adapter_sha256(project: Path) -> str:
    """Digest of the trained adapter of the run `first`."""
    path = project / "runs/first/04-train/001/artifacts/adapter/adapter_model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def start(project: Path, *words: str) -> subprocess.Popen[str]:
    """A command that goes on in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", *words],
        cwd=project,
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_checkpoint(project: Path, process: subprocess.Popen[str], step: int, timeout_s: float = 300) -> None:
    """Until the training has published a checkpoint at or after `step`."""
    folder = project / "runs/first/checkpoints/train-001"
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        steps = [int(p.name) for p in folder.rglob("*") if p.is_dir() and p.name.isdigit()]
        if any(s >= step for s in steps):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("the training wrote no checkpoint")


def kill_family(process: subprocess.Popen[str]) -> None:
    """SIGKILL of the process and everything it started, as a power loss would."""
    for member in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
        member.send_signal(signal.SIGKILL)
    process.communicate()
