"""Worker processes: heavy work runs in a process of its own, so that its death takes down nothing else.

A worker is `python -m MODULE JOB`, or one such process per rank. It speaks JSON lines on stdout (`progress`, `event`,
`result`, `error`), logs on stderr, and reads `stop` from stdin; end of file there means that its parent is gone, and it
ends at once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from specs.files import storage_errors
from specs.parameters import Allocator
from specs.stages import Progress
from tasks.allocator import variables
from tasks.interrupts import STOP, StopRequest
from tasks.worker_family import LEFT_S, Member, Process, log_of, together

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
"""What a worker sees of our environment, with every LC_, SLURM_ and NCCL_ variable: no password and no key."""


def worker_environment(
    threads: int, ours: Mapping[str, str] | None = None, allocator: Allocator = "default"
) -> dict[str, str]:
    """The environment of a worker: allow-listed, offline, threads fixed, no spinning (set before torch is imported)."""
    ours = os.environ if ours is None else ours
    kept = {k: v for k, v in ours.items() if k.upper() in ALLOWED or k.startswith(("LC_", "SLURM_", "NCCL_"))}
    root = str(Path(__file__).resolve().parent.parent)
    path = [root, *(p for p in kept.get("PYTHONPATH", "").split(os.pathsep) if p and p != root)]
    return kept | {
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        "OMP_WAIT_POLICY": "passive",
        # glibc gives freed tensors of 1 MiB and more back, so that a peak is what was allocated; smaller ones would
        # cost a third of the step in page faults, and huge pages halve what is left of that. Its two caches of small
        # freed blocks (tcache, fast bins) would hold the heap at its highest: free room below it, which stays with the
        # process and into which tensors of later steps are cut.
        "MALLOC_MMAP_THRESHOLD_": str(2**20),
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0",
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **variables(allocator),
    }


def run_worker(
    module: str,
    job: Path,
    log: Path,
    progress: Progress,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    *,
    threads: int = 2,
    allocator: Allocator = "default",
    stop: StopRequest = STOP,
    ranks: int = 1,
    start: Start | None = None,
    left_s: float = LEFT_S,
) -> dict[str, Any]:
    """Run `python -m module job` to its end; returns the worker's `result` line (empty when it sent none).

    With several `ranks` it is one process for each, started as `python -m module job RANK MEETING`. A stop request is
    passed on, and `Stopped` raised when the worker has saved and ended. Errors that the worker explains are raised as
    their own class; a worker that dies raises `WorkerDied`, or `OutOfMemory` where the kernel took its memory
    back. stderr is appended to `log`, of further ranks beside it.
    `start` starts a process otherwise than as a program of its own; `left_s` after one rank's end the others are ended.
    """
    start = start or start_program
    members: list[Member] = []
    with storage_errors(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix="gatewright-ranks-")) if ranks > 1 else None
    try:
        with together(members, progress, on_event, left_s) as family:
            for rank in range(ranks):
                arguments = [str(job), *([str(rank), str(place / "meeting")] if place else [])]
                with storage_errors(log), log_of(log, rank).open("ab") as stderr:
                    process = start(module, arguments, stderr, worker_environment(threads, None, allocator))
                members.append(Member(rank, process, log_of(log, rank)))
            family.follow(stop)
        return family.outcome(module)
    finally:
        if place:
            shutil.rmtree(place, ignore_errors=True)


Start = Callable[[str, list[str], IO[bytes], dict[str, str]], Process]
"""Starts a module with arguments, stderr and environment; its stdin and stdout are pipes."""


def start_program(
    module: str, arguments: list[str], stderr: IO[bytes], environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """`python -m module arguments` in a process group of its own: a Ctrl-C of the terminal reaches only the parent."""
    group: dict[str, Any] = (
        {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
        if os.name == "nt"
        else {"start_new_session": True}
    )
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment,
        **group,
    )
