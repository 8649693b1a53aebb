"""A limit on the memory of this process that is kept by the allocator: beyond it a request fails, and can be told."""

from __future__ import annotations

from specs.errors import OutOfMemory
from tasks.training.measure import STATUS, resident_bytes, status_bytes


def limit_memory(limit_bytes: int | None, device: str) -> bool:
    """Hold this process to `limit_bytes` from here on; false where the platform cannot.

    On a GPU torch's allocator refuses what is above it. On a CPU the kernel does (RLIMIT_DATA, which counts writable
    memory): the process may grow by the limit less what is resident now, when the libraries are loaded.
    Raises `OutOfMemory` when the libraries alone are above it.
    """
    if limit_bytes is None:
        return True
    if device.startswith("cuda"):
        import torch

        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total))
        return True
    try:
        import resource
    except ImportError:
        return False
    if not STATUS.exists():
        return False
    held = resident_bytes()
    if held >= limit_bytes:
        raise OutOfMemory(
            f"out of memory: the libraries hold {held / 2**20:.0f} MiB before a model is loaded, and the limit is "
            f"{limit_bytes / 2**20:.0f} MiB",
            "raise launcher.memory_gb in project.yaml",
            {"resident_bytes": held, "limit_bytes": limit_bytes},
        )
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = status_bytes("VmData") + limit_bytes - held
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard < 0 else min(wanted, hard), hard))
    return True
