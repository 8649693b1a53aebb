"""Starting the training worker from a stage, and keeping what it left."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from specs.canonical import canonical_bytes
from specs.errors import WorkerError
from specs.files import read_lines, storage_errors, write_bytes
from specs.resuming import Changed
from specs.stages import Progress
from tasks.interrupts import STOP, StopRequest
from tasks.training.checkpoints import Passed
from tasks.training.job import Job, WorkerResult
from tasks.training.judgement import Judgement
from tasks.training.logbook import CUT_ON_RESUME, NEVER_CUT
from tasks.workers import run_worker

WORKER = "tasks.training.worker"

LOGS = (*CUT_ON_RESUME, *NEVER_CUT)
CHECKS = ("checks.json", "generated.jsonl")
DOCUMENTS = ("settings.json", "packing.json", "judgement.json", "probe.json", "evaluation.json", *CHECKS)
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
    training = job.training
    said = run_worker(
        module,
        path,
        log,
        progress,
        on_event,
        threads=training.threads,
        allocator=training.allocator,
        stop=stop,
        ranks=training.ranks,
    )
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


def session_notes(sessions: Sequence[dict[str, Any]], language: str) -> list[str]:
    """Resumes, what a person confirmed for them, and checkpoints that were passed over, in words."""
    notes = []
    for session in sessions[1:]:
        step, n = session["from_step"], session["session"]
        notes.append(
            f"第 {n} 次启动：从第 {step} 步继续" if language == "zh" else f"start {n}: went on from step {step}"
        )
    for session in sessions:
        rows = [Changed.model_validate(row) for row in session.get("confirmed", ())]
        told = "; ".join(f"{row.what}: {row.was} -> {row.now}" for row in rows)
        if rows:
            notes.append(
                f"第 {session['session']} 次启动：环境与检查点写入时不同，经人确认后继续（{told}）"
                if language == "zh"
                else f"start {session['session']}: went on although this differed, as a person confirmed: {told}"
            )
        for passed in session["passed_over"]:
            one, n = Passed.model_validate(passed), session["session"]
            notes.append(
                f"第 {n} 次启动：未使用检查点 {one.name}（{one.words('zh')}）"
                if language == "zh"
                else f"start {n}: passed over checkpoint {one.name}: {one.words('en')}"
            )
    return notes


def training_notes(artifacts: Path, language: str) -> list[str]:
    """What happened on the way of a finished training, in words: resumes, spikes, the early judgement."""
    zh = language == "zh"
    steps = read_lines(artifacts / "metrics.jsonl")
    notes = _rank_notes(steps, zh) + session_notes(read_lines(artifacts / "sessions.jsonl"), language)
    proofs = artifacts / "continuity.jsonl"  # not there unless something was resumed
    lines = read_lines(proofs) if proofs.is_file() else []
    notes += [_proof_note(line, zh) for line in lines if "difference_at_first" in line]
    spikes = Counter(line["spike"] for line in steps if line.get("spike"))
    words = {"noted": "仅记录", "skipped": "未用于更新", "passed over": "回退后跳过"}
    for kind, count in sorted(spikes.items()):
        notes.append(
            f"损失尖峰：{count} 步（{words[kind]}）"
            if zh
            else f"loss spikes: {count} steps {kind} (metrics.jsonl names them)"
        )
    path = artifacts / "judgement.json"
    if path.is_file():
        found = Judgement.model_validate_json(path.read_bytes())
        notes.append(_judgement_note(found, zh))
    return notes


def _proof_note(line: dict[str, Any], zh: bool) -> str:
    n, off = line["session"], line["difference_at_first"]
    if zh:
        return f"第 {n} 次启动：检查点固定批次的损失首次计算相差 {off:.3g}，重算后一致；若多次出现，请检查内存与处理器"
    return (
        f"start {n}: the loss of the checkpoint's pinned batch was {off:.3g} off at first and the same when it was "
        "computed again; if that happens often, have memory and processor checked"
    )


def _rank_notes(steps: Sequence[dict[str, Any]], zh: bool) -> list[str]:
    """How many ranks trained, and the highest memory of each."""
    peaks = [line["memory_bytes_by_rank"] for line in steps if line.get("memory_bytes_by_rank")]
    if not peaks:
        return []
    highest = [max(by_rank) / 2**20 for by_rank in zip(*peaks, strict=True)]
    shown = ("、" if zh else ", ").join(f"{rank}: {peak:,.0f} MiB" for rank, peak in enumerate(highest))
    return [
        f"由 {len(highest)} 个进程（rank）训练；各自的内存峰值 {shown}"
        if zh
        else f"trained by {len(highest)} ranks; the highest memory of each: {shown}"
    ]


def _judgement_note(found: Judgement, zh: bool) -> str:
    left_out = found.too_long
    if not zh:
        more = f"; {left_out} held-out samples were left out, longer than any micro batch" if left_out else ""
        return f"early judgement: {found.verdict}; {found.words}{more}"
    verdicts = {"go on": "继续", "ask": "由人决定", "stop": "停止", "not judged": "样本过少，未评判"}
    text = f"早期评判（第 {found.step} 步）：{verdicts[found.verdict]}"
    if found.change is not None:
        text += f"；{found.samples} 条留出样本的损失变化 {found.change:+.4f}（标准误 {found.standard_error:.4f}）"
    return text + (f"；{left_out} 条留出样本比任何微批都长，未测量" if left_out else "")
