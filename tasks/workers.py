"""Worker processes: heavy work runs in a process of its own, so that its death takes down nothing else.

A worker is `python -m MODULE JOB`. It speaks JSON lines on stdout (`progress`, `event`, `result`, `error`), logs on
stderr, and reads `stop` from stdin; end of file there means that its parent is gone, and it ends at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from specs import errors
from specs.errors import EXIT_STOPPED, GatewrightError, Stopped, WorkerError
from specs.files import storage_errors
from specs.stages import Progress
from tasks.interrupts import STOP, StopRequest

_NAMES = """
PATH HOME USER LOGNAME LANG LANGUAGE TZ TMPDIR TEMP TMP SSL_CERT_FILE
PYTHONPATH PYTHONHOME VIRTUAL_ENV LD_LIBRARY_PATH LD_PRELOAD
SYSTEMROOT WINDIR USERPROFILE APPDATA LOCALAPPDATA PATHEXT COMSPEC
XDG_CACHE_HOME XDG_DATA_HOME HF_HOME HF_HUB_CACHE GATEWRIGHT_HOME
PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF CUBLAS_WORKSPACE_CONFIG
CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_HOME CUDA_PATH CUDA_LAUNCH_BLOCKING
NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES NVIDIA_TF32_OVERRIDE
"""

ALLOWED: frozenset[str] = frozenset(_NAMES.split())
"""What a worker sees of our environment, with every LC_ and SLURM_ variable. No password and no key is among them."""

POLL_S = 0.2
GRACE_S = 60.0
"""How long a worker that has said everything, or was left, may take to end before it is killed."""

LAST_LINES = 12

USER_ERRORS: dict[str, type[GatewrightError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, GatewrightError) and kind is not errors.SpecError
}


class WorkerDied(WorkerError):
    """A worker that ended without saying why; `signal_number` is what killed it, null when it exited by itself."""

    def __init__(self, message: str, hint: str, signal_number: int | None) -> None:
        super().__init__(message, hint)
        self.signal_number = signal_number


def worker_environment(threads: int, ours: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a worker: allow-listed, offline, threads fixed, no spinning (set before torch is imported)."""
    ours = os.environ if ours is None else ours
    kept = {k: v for k, v in ours.items() if k.upper() in ALLOWED or k.startswith(("LC_", "SLURM_"))}
    root = str(Path(__file__).resolve().parent.parent)
    path = [root, *(p for p in kept.get("PYTHONPATH", "").split(os.pathsep) if p and p != root)]
    return kept | {
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        "OMP_WAIT_POLICY": "passive",
        # glibc gives freed tensors of 1 MiB and more back, so that a peak is what was allocated; smaller ones would
        # cost a third of the step in page faults, and huge pages halve what is left of that.
        "MALLOC_MMAP_THRESHOLD_": str(2**20),
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def run_worker(
    module: str,
    job: Path,
    log: Path,
    progress: Progress,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    *,
    threads: int = 2,
    stop: StopRequest = STOP,
) -> dict[str, Any]:
    """Run `python -m module job` to its end; returns the worker's `result` line (empty when it sent none).

    A stop request is passed on, and `Stopped` raised when the worker has saved and ended. Errors that the worker
    explains are raised as their own class; a worker that dies raises `WorkerDied`. stderr is appended to `log`.
    """
    with storage_errors(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stderr:
            process = _start(module, job, stderr, threads)
    conversation = _Conversation(process, progress, on_event)
    try:
        conversation.follow(stop)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    finally:
        _end(process)
    return conversation.outcome(module, log)


def _start(module: str, job: Path, stderr: IO[bytes], threads: int) -> subprocess.Popen[bytes]:
    group: dict[str, Any] = (
        {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
        if os.name == "nt"
        else {"start_new_session": True}
    )
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(job)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=worker_environment(threads),
        **group,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the worker's stdin, which makes it end at once, and kill what does not. Nothing is left running."""
    if process.stdin:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout:
        process.stdout.close()


class _Conversation:
    """What a worker says, line by line, and what becomes of it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        progress: Progress,
        on_event: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self.process = process
        self.progress = progress
        self.on_event = on_event
        self.result: dict[str, Any] = {}
        self.error: dict[str, Any] | None = None
        self.asked_to_stop = False
        self._lines: queue.Queue[bytes | None] = queue.Queue()

    def follow(self, stop: StopRequest) -> None:
        """Read until the worker closes its stdout. Ctrl-C without handlers installed counts as a stop request."""
        reader = threading.Thread(target=self._read, name="worker-output", daemon=True)
        reader.start()
        while True:
            try:
                if stop.requested() and not self.asked_to_stop:
                    self._ask_to_stop(stop.reason)
                line = self._lines.get(timeout=POLL_S)
                if line is None:
                    return
                self._take(line)
            except queue.Empty:
                continue
            except KeyboardInterrupt:
                stop.request("SIGINT")

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(OSError, ValueError):  # closed under us after a kill
            for line in self.process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def _ask_to_stop(self, reason: str) -> None:
        self.asked_to_stop = True
        self.progress.say(f"{reason}: the worker saves its state and ends")
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it is ending already
            self.process.stdin.write(b"stop\n")
            self.process.stdin.flush()

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            kind = message.pop("type")
        except (ValueError, KeyError, AttributeError):
            return
        if kind == "start":
            self.progress.start(message["what"], message["total"])
        elif kind == "advance":
            self.progress.advance(message["units"], message["note"])
        elif kind == "say":
            self.progress.say(message["text"])
        elif kind == "result":
            self.result = message
        elif kind == "error":
            self.error = message
        elif kind == "event" and self.on_event:
            self.on_event(message)

    def outcome(self, module: str, log: Path) -> dict[str, Any]:
        """The result, or the error that ended the worker."""
        code = self.process.returncode
        if self.error:
            raise USER_ERRORS.get(self.error["class"], WorkerError)(self.error["message"], self.error["hint"])
        if code == EXIT_STOPPED or (self.asked_to_stop and code != 0):
            raise Stopped("stopped on request", "`gatewright resume` goes on from the newest checkpoint")
        if code != 0:
            raise _died(module, code, log)
        return self.result


def _died(module: str, code: int, log: Path) -> WorkerDied:
    name = module.rpartition(".")[0] or module
    hint = f"its log is {log}" + _last_lines(log)
    if code >= 0:
        return WorkerDied(f"the worker of {name} ended with exit code {code} and no result", hint, None)
    number = -code
    if number == getattr(signal, "SIGKILL", 9):
        return WorkerDied(
            f"the worker of {name} was killed by the system, most likely out of memory",
            f"free memory, or lower micro_batch or max_length; `gatewright resume` goes on from the last save; {hint}",
            number,
        )
    try:
        killer = signal.Signals(number).name
    except ValueError:
        killer = f"signal {number}"
    return WorkerDied(f"the worker of {name} was ended by {killer}", hint, number)


def _last_lines(log: Path) -> str:
    """The end of the log for a person, without the frames of a traceback."""
    try:
        lines = log.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    shown = [line for line in lines if line.strip() and not line.startswith((" ", "Traceback"))][-LAST_LINES:]
    return "; its last lines:\n" + "\n".join(f"  {line[:300]}" for line in shown) if shown else ""
