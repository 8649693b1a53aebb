"""Running out of memory as an outcome: told from other errors, with figures; and the kernel's own killer, counted."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from pathlib import Path
from typing import Any

from specs.errors import OutOfMemory

HINT = "lower micro_batch or max_length, or switch activation_checkpointing on; go back to the stress test"

_WORDS = re.compile(
    r"out of memory|can't allocate memory|cannot allocate memory|not enough memory|bad_alloc|alloc_failed"
    r"|can't start new thread|bad_array_new_length|memory allocation of \d+ bytes failed",
    re.IGNORECASE,
)
"""Of CUDA and its libraries, torch's CPU allocator, C++, the system; a thread needs memory for its stack."""

_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]+) ?(bytes|KiB|MiB|GiB|TiB)?")
_UNITS = {"": 1, "bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

_VMSTAT = Path("/proc/vmstat")
_VICTIM = 500
"""Added to a worker's badness of at most 1000: when memory ends, the kernel takes the worker, not who supervises it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory could not be had, in whatever words of whatever library."""
    if isinstance(error, MemoryError | OutOfMemory):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return type(error).__name__ == "OutOfMemoryError" or bool(_WORDS.search(str(error)))


def explained(error: BaseException) -> OutOfMemory:
    """The error for the parent, with the figures of this moment."""
    if isinstance(error, OutOfMemory):
        return error
    text = (str(error).strip() or type(error).__name__).splitlines()[0][:500]
    return OutOfMemory(f"out of memory: {text}", HINT, facts(str(error)))


def asked_bytes(text: str) -> int | None:
    """What an allocator says was asked for; null where it does not say."""
    found = _ASKED.search(text)
    return round(float(found.group(1)) * _UNITS[found.group(2) or ""]) if found else None


def facts(text: str) -> dict[str, Any]:
    """Figures of this process at this moment; none of the libraries is imported for it."""
    found: dict[str, Any] = {"asked_bytes": asked_bytes(text)}
    torch: Any = sys.modules.get("torch")
    with contextlib.suppress(Exception):  # a device whose context is broken answers nothing
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            free, total = torch.cuda.mem_get_info()
            found |= {
                "free_bytes": int(free),
                "total_bytes": int(total),
                "allocated_bytes": int(torch.cuda.memory_allocated()),
                "reserved_bytes": int(torch.cuda.memory_reserved()),
            }
    with contextlib.suppress(OSError):
        found |= {"resident_bytes": _status("VmRSS"), "data_bytes": _status("VmData")}
    return {name: value for name, value in found.items() if value is not None}


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text("ascii", errors="replace").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {key}")


def kernel_kills() -> int | None:
    """How many processes the kernel has killed for memory since it started; null where it does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _VMSTAT.read_text("ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None


def be_the_victim() -> None:
    """In a worker: ask the kernel to take this process first when memory ends. Elsewhere nothing."""
    with contextlib.suppress(OSError, ValueError):
        path = Path(f"/proc/{os.getpid()}/oom_score_adj")
        path.write_text(str(max(_VICTIM, int(path.read_text("ascii")))), "ascii")
