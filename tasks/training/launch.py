"""Starting the training worker from a stage, and keeping what it left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from specs.canonical import canonical_bytes
from specs.errors import WorkerError
from specs.files import storage_errors, write_bytes
from specs.stages import Progress
from tasks.interrupts import STOP, StopRequest
from tasks.training.job import Job, WorkerResult
from tasks.workers import run_worker

WORKER = "tasks.training.worker"

LOGS = ("metrics.jsonl", "micro_batches.jsonl", "fed.jsonl", "sessions.jsonl", "memory.jsonl")
DOCUMENTS = ("settings.json", "probe.json", "evaluation.json")
FOLDERS = ("adapter", "model")


def run_training(
    job: Job,
    log: Path,
    progress: Progress,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    *,
    stop: StopRequest = STOP,
    module: str = WORKER,
) -> WorkerResult:
    """Write the job beside its output and run the worker on it. A job that is finished already is not run again.

    Raises what the worker raises; `WorkerError` when it ends without saying how far it came.
    """
    path, data = job.out / "job.json", canonical_bytes(job)
    finished = _finished(job.out)
    if finished is not None and path.is_file() and path.read_bytes() == data:
        return finished
    write_bytes(path, data)
    said = run_worker(module, path, log, progress, on_event, threads=job.training.threads, stop=stop)
    if not said:
        raise WorkerError("the training worker ended without a result", f"its log is {log}")
    return WorkerResult.model_validate(said)


def _finished(out: Path) -> WorkerResult | None:
    try:
        result = WorkerResult.model_validate_json((out / "result.json").read_bytes())
    except (OSError, ValueError):
        return None
    return result if result.finished else None


def keep_results(out: Path, artifacts: Path) -> None:
    """Copy what a worker left into an attempt's artifacts, in place of what an earlier start had copied."""
    with storage_errors(artifacts):
        artifacts.mkdir(parents=True, exist_ok=True)
        for name in (*LOGS, *DOCUMENTS):
            if (out / name).is_file():
                shutil.copyfile(out / name, artifacts / name)
        for name in FOLDERS:
            if (out / name).is_dir():
                shutil.rmtree(artifacts / name, ignore_errors=True)
                shutil.copytree(out / name, artifacts / name, copy_function=shutil.copyfile)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def session_notes(sessions: Sequence[dict[str, Any]], language: str) -> list[str]:
    """Resumes and checkpoints that were passed over, in words."""
    notes = []
    for session in sessions[1:]:
        step, n = session["from_step"], session["session"]
        notes.append(
            f"第 {n} 次启动：从第 {step} 步继续" if language == "zh" else f"start {n}: went on from step {step}"
        )
    for session in sessions:
        for passed in session["passed_over"]:
            name, reason, n = passed["name"], passed["reason"], session["session"]
            notes.append(
                f"第 {n} 次启动：未使用不完整的检查点 {name}（{reason}）"
                if language == "zh"
                else f"start {n}: passed over checkpoint {name}: {reason}"
            )
    return notes
