"""Who else holds memory of a device: named for a person, never touched."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from tasks.memory.devices import Device
from tasks.nvml import ask_driver, first_visible

MOST_NAMED = 5
SMALLEST_BYTES = 64 * 2**20


def others(device: Device) -> list[dict[str, Any]]:
    """Other processes that hold memory of the device, the largest first: `name`, `pid`, `bytes` (null: not told)."""
    found = _on_gpu() if device.kind == "cuda" else _on_host()
    return sorted(found, key=lambda p: -(p["bytes"] or 0))[:MOST_NAMED]


def told(processes: list[dict[str, Any]]) -> str:
    """The same in words."""
    if not processes:
        return "no other process holds memory of the device"
    return "other processes hold memory of the device: " + ", ".join(
        f"{p['name']} (pid {p['pid']}" + (f", {p['bytes'] / 2**30:.2f} GiB)" if p["bytes"] is not None else ")")
        for p in processes
    )


def _on_gpu() -> list[dict[str, Any]]:
    def processes(nvml: Any) -> list[Any]:
        handle = first_visible(nvml)
        return [
            *nvml.nvmlDeviceGetComputeRunningProcesses(handle),
            *nvml.nvmlDeviceGetGraphicsRunningProcesses(handle),
        ]

    running = ask_driver(processes) or []
    by_pid = {int(p.pid): None if p.usedGpuMemory is None else int(p.usedGpuMemory) for p in running}
    return [{"name": _name(pid), "pid": pid, "bytes": held} for pid, held in by_pid.items() if pid not in _family()]


def _on_host() -> list[dict[str, Any]]:
    import psutil

    family, found = _family(), []
    for process in psutil.process_iter(["pid", "name", "memory_info"]):
        memory = process.info["memory_info"]
        if memory is not None and process.info["pid"] not in family and memory.rss >= SMALLEST_BYTES:
            found.append({"name": process.info["name"] or "?", "pid": process.info["pid"], "bytes": int(memory.rss)})
    return found


def _family() -> set[int]:
    """This process and what it started."""
    import psutil

    found = {os.getpid()}
    with contextlib.suppress(psutil.Error):
        found |= {child.pid for child in psutil.Process().children(recursive=True)}
    return found


def _name(pid: int) -> str:
    import psutil

    with contextlib.suppress(psutil.Error):
        return str(psutil.Process(pid).name())
    return "a process of another container or user"
