"""Peak memory of a phase: the CUDA allocator's where there is a GPU, otherwise the process's resident set."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from tasks.nvml import ask_driver, first_visible

Method = Literal["cuda", "high_water", "sampling"]

STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
SAMPLING_INTERVAL_S = 0.005


class PeakMeter:
    """Highest memory since the last `reset`, in bytes.

    `cuda` reads torch's allocator; `high_water` the kernel's VmHWM, which Linux lets a process reset;
    `sampling` polls the resident set every 5 ms and can miss a shorter peak. `baseline_bytes` is what was held
    when the meter was made: make it before the model is loaded to know what the model costs.
    """

    def __init__(self, device: str = "cpu", method: Method | None = None) -> None:
        self.device = device
        self.method: Method = method or _best_method(device)
        self._sampler = _Sampler() if self.method == "sampling" else None
        if self._sampler:
            self._sampler.start()
        self.baseline_bytes = self.current_bytes()
        self.reset()

    def current_bytes(self) -> int:
        """Memory held now: allocated on the device, or resident."""
        if self.method == "cuda":
            import torch

            return int(torch.cuda.memory_allocated(self.device))
        return resident_bytes()

    def reset(self) -> None:
        """Begin a new phase: the peak is what is held now."""
        if self.method == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats(self.device)
        elif self.method == "high_water":
            _CLEAR_REFS.write_bytes(b"5")
        elif self._sampler:
            self._sampler.begin()

    def peak_bytes(self) -> int:
        """Highest allocated (CUDA) or resident bytes since `reset`."""
        if self.method == "cuda":
            import torch

            return int(torch.cuda.max_memory_allocated(self.device))
        if self.method == "high_water":
            return status_bytes("VmHWM")
        assert self._sampler is not None
        return self._sampler.look()

    def reserved_bytes(self) -> int | None:
        """Highest reserved bytes of the CUDA caching allocator since `reset`; null without a GPU."""
        if self.method != "cuda":
            return None
        import torch

        return int(torch.cuda.max_memory_reserved(self.device))

    def driver_bytes(self) -> int | None:
        """What this process holds now for whoever manages the memory: the GPU's driver, or the kernel (swap included).

        Null where it does not say: in a container the driver often knows processes by other numbers.
        """
        return process_on_gpu() if self.method == "cuda" else held_for_kernel()

    def close(self) -> None:
        """Stop the sampling thread, where there is one."""
        if self._sampler:
            self._sampler.stop()

    def __enter__(self) -> PeakMeter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class _Sampler(threading.Thread):
    """Keeps the highest resident set it has seen."""

    def __init__(self) -> None:
        super().__init__(name="peak-memory", daemon=True)
        self._peak = resident_bytes()
        self._one = threading.Lock()
        self._end = threading.Event()

    def begin(self) -> None:
        """Forget what was; no look that began before may bring it back."""
        with self._one:
            self._peak = resident_bytes()

    def look(self) -> int:
        """The highest so far, with what is resident now, which is kept: what was told once stays the least."""
        with self._one:
            self._peak = max(self._peak, resident_bytes())
            return self._peak

    def run(self) -> None:
        while not self._end.wait(SAMPLING_INTERVAL_S):
            self.look()

    def stop(self) -> None:
        """End and wait."""
        self._end.set()
        self.join()


def resident_bytes() -> int:
    """Resident set of this process."""
    if STATUS.exists():
        return status_bytes("VmRSS")
    import psutil

    return int(psutil.Process().memory_info().rss)


def held_for_kernel() -> int:
    """Resident set and what of this process was swapped out."""
    swapped = status_bytes("VmSwap") if STATUS.exists() else 0
    return resident_bytes() + swapped


def process_on_gpu() -> int | None:
    """What the driver counts for this process on its first GPU; null where it does not know the process."""

    def running(nvml: Any) -> list[Any]:
        found: list[Any] = nvml.nvmlDeviceGetComputeRunningProcesses(first_visible(nvml))
        return found

    processes = ask_driver(running) or []
    held = [p.usedGpuMemory for p in processes if p.pid == os.getpid()]
    return int(held[0]) if held and held[0] is not None else None


def status_bytes(key: str) -> int:
    """A size that the kernel tells of this process, by its key in `/proc/self/status`."""
    with STATUS.open("rb") as file:
        for line in file:
            if line.startswith(key.encode() + b":"):
                return int(line.split()[1]) * 1024
    raise OSError(f"{STATUS} has no {key}")


def _best_method(device: str) -> Method:
    if device.startswith("cuda"):
        return "cuda"
    return "high_water" if sys.platform == "linux" and _high_water_resets() else "sampling"


def _high_water_resets() -> bool:
    """Whether this kernel and container let a process reset its VmHWM, tried with 64 MiB."""
    try:
        block = bytearray(64 * 2**20)
        del block
        _CLEAR_REFS.write_bytes(b"5")
        before = status_bytes("VmHWM")
        return before - status_bytes("VmRSS") < 32 * 2**20
    except OSError:
        return False
