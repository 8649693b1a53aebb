"""Base models that are made on this machine: made once, beside the target, by a worker process, published by rename."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from specs.errors import ModelError, StorageError, WorkerError
from specs.files import publish_folder, storage_errors, write_json
from specs.places import models
from specs.stages import Progress
from tasks.models.folder import digest_model, require_usable
from tasks.workers import worker_environment

RECORD = "gatewright-model.json"
"""Written into a made folder: its digest when it was made, so that later damage is seen."""


def made_once(
    folder_name: str, worker: Callable[[], list[str]], what: str, need_bytes: int, progress: Progress
) -> Path:
    """The folder `folder_name` in the model cache; made by `python -m <worker()...> OUT` when it is not there.

    Two processes may make it at the same time: one publishes, the other takes that. Raises `ModelError` when the
    cached folder is not what was published, `StorageError` without room, `WorkerError` when the worker fails.
    """
    target = models() / folder_name
    if not target.exists():
        command = worker()
        with storage_errors(models()):
            models().mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder_name)
        _require_room(need_bytes)
        partial = models() / f"{folder_name}.{socket.gethostname()}.{os.getpid()}.partial"
        try:
            _run_worker([*command, str(partial)], what, progress)
            require_usable(partial, what)
            write_json(partial / RECORD, {"sha256": digest_model(partial)})
            _publish(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    _require_unchanged(target, what)
    return target


def _publish(partial: Path, target: Path) -> None:
    try:
        publish_folder(partial, target)
    except OSError:
        if not target.exists():
            raise


def _require_unchanged(target: Path, what: str) -> None:
    again = f"delete the folder {target}; it is then made again"
    try:
        recorded = json.loads((target / RECORD).read_text("utf-8"))["sha256"]
        require_usable(target, what)
    except (OSError, ValueError, KeyError, TypeError, ModelError) as error:
        raise ModelError(f"the cached model {target} is damaged", again) from error
    if digest_model(target) != recorded:
        raise ModelError(f"the cached model {target} is not what was made: a file in it has changed", again)


def _remove_abandoned(folder_name: str) -> None:
    """Partial folders of processes of this machine that are gone."""
    for path in sorted(models().glob(f"{folder_name}.*.partial")):
        host, _, process = path.name[len(folder_name) + 1 : -len(".partial")].rpartition(".")
        if host == socket.gethostname() and process.isdigit() and not psutil.pid_exists(int(process)):
            shutil.rmtree(path, ignore_errors=True)


def _require_room(need_bytes: int) -> None:
    free = shutil.disk_usage(models()).free
    if free < need_bytes:
        raise StorageError(
            f"{models()} has {free / 1e6:.0f} MB free and the base model needs {need_bytes / 1e6:.0f} MB",
            "free some space, or set GATEWRIGHT_HOME to a folder on another volume",
        )


def _run_worker(worker: list[str], what: str, progress: Progress) -> None:
    """Runs the worker program; its environment is an allow-list without secrets."""
    progress.start(f"{what}: making the model folder (once)")
    process = subprocess.Popen(
        [sys.executable, "-m", *worker],
        env=worker_environment(threads=2),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    began = time.monotonic()
    try:
        while True:
            try:
                _, errors = process.communicate(timeout=1)
                break
            except subprocess.TimeoutExpired:
                progress.advance(1, f"{time.monotonic() - began:.0f} s")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode:
        _raise_for(errors, process.returncode, what)


def _raise_for(errors: str, code: int, what: str) -> None:
    lines = [line for line in errors.splitlines() if line.strip()]
    last = lines[-1] if lines else f"exit code {code}"
    if "No space left on device" in errors:
        raise StorageError(
            f"no space left in {models()} while making {what}", "free some space, or set GATEWRIGHT_HOME elsewhere"
        )
    if "ModuleNotFoundError" in last:
        raise ModelError(f"{what} needs a library that is not installed: {last}", "pip install 'gatewright[train]'")
    if code < 0:
        raise WorkerError(
            f"{what}: the worker was killed by signal {-code}", "a model in fp32 needs memory of about twice its size"
        )
    raise WorkerError(f"{what}: the worker failed: {last}", "try again; the partial folder is removed")
