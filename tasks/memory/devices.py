"""The device a training runs on: what is here, or what the spec names. Needs no torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from specs.base import Strict
from specs.errors import InputError
from specs.hardware import GIB, TORCH_OF_DRIVER, Gpu, find_gpu
from specs.project import Hardware
from tasks.nvml import ask_driver, first_visible

HOST_RESERVE_SHARE = 0.1
"""Of the machine's memory, left to the system and to ourselves when training runs on the CPU."""


class Device(Strict):
    """One kind of device and how many of it. `usable_bytes` is what one process can have on one of them.

    It is a property of the device, so that equal input gives equal proposals; `free_bytes` is what is free now.
    """

    kind: Literal["cpu", "cuda"]
    name: str
    count: int = Field(ge=1)
    usable_bytes: int
    usable_source: str
    free_bytes: int | None = Field(None, description="when asked; null for a device that is not here")
    physical_cores: int
    bf16: bool
    tflops: float | None = None
    driver: str = ""
    host_bytes: int | None = Field(None, description="host memory that trainings can have; null: not known")
    disk_bytes: int | None = Field(None, description="free disk; null: not known")
    together_bytes: int | None = Field(None, description="what all processes can have; null: usable_bytes")
    here: bool = Field(True, description="false: named in the spec, not in this machine")

    def with_host(self, memory_gb: float | None, disk_gb: float | None) -> Device:
        """The same beside this much host memory and disk, in GiB; null is not known."""
        found = {"host_bytes": memory_gb, "disk_bytes": disk_gb}
        return self.model_copy(update={k: round(v * GIB) for k, v in found.items() if v is not None})

    def per_rank(self, ranks: int) -> Device:
        """What one of several training processes has: each a GPU of its own, or its part of the host's memory."""
        share = (self.together_bytes or self.usable_bytes) // ranks
        if self.kind != "cpu" or ranks == 1 or share >= self.usable_bytes:
            return self
        source = f"{self.usable_source}, shared by {ranks} processes"
        return self.model_copy(update={"usable_bytes": share, "usable_source": source})

    def require_cards(self, ranks: int, visible: str | None = None) -> Device:
        """The same, where each of so many training processes can have a GPU of its own; processes on a CPU share it.

        `visible` is CUDA_VISIBLE_DEVICES, null where it is not set. Raises `InputError` with what there is.
        """
        cards = self.count if visible is None or not self.here else min(self.count, len(_named(visible)))
        if self.kind == "cpu" or ranks <= cards:
            return self
        there = f"{cards} GPU" + ("s" if cards != 1 else "")
        hidden = f" (CUDA_VISIBLE_DEVICES shows {cards} of {self.count})" if cards < self.count else ""
        raise InputError(
            f"{ranks} training processes need {ranks} GPUs, one for each, and this machine has {there}{hidden}",
            f"set launcher.processes to {max(1, cards)} or less, or train on a machine with {ranks} GPUs; to plan for "
            "such a machine from here, name it: hardware: {gpu: NAME, count: N}",
        )

    def within(self, limit_bytes: int) -> Device:
        """The same where a process may have at most so much of it."""
        if limit_bytes >= self.usable_bytes:
            return self
        found = {"usable_bytes": limit_bytes, "usable_source": "launcher.memory_gb of the spec"}
        return self.model_copy(update={**found, "together_bytes": self.together_bytes or self.usable_bytes})

    def facts(self) -> dict[str, Any]:
        """Plain data for the proposer: holds nothing that identifies the machine."""
        return self.model_dump(
            mode="json",
            exclude={"driver", "usable_source", "free_bytes", "here", "host_bytes", "disk_bytes", "together_bytes"},
        )


def this_device(hardware: Literal["auto"] | Hardware = "auto", limit_gb: float | None = None) -> Device:
    """The device of a run: the GPU of this machine, its CPU where there is none, or the one the spec names.

    `limit_gb` is what a training process may have of it (`launcher.memory_gb`).
    """
    if hardware != "auto":
        found = named(hardware.gpu, hardware.count, hardware.memory_gb)
    else:
        found = _cuda_device() or cpu_device()
    return found if limit_gb is None else found.within(round(limit_gb * GIB))


def device_of_rank(ranks: int, limit_gb: float | None = None) -> Device:
    """What each of so many training processes of this machine has. Raises `InputError` where GPUs are too few."""
    found = this_device("auto", limit_gb).require_cards(ranks, os.environ.get("CUDA_VISIBLE_DEVICES"))
    return found.per_rank(ranks)


def named(gpu: str, count: int = 1, memory_gb: float | None = None) -> Device:
    """A device of the catalog, or one with `memory_gb` given. Raises `InputError` when neither says its memory."""
    known: Gpu | None
    try:
        known = find_gpu(gpu)
    except InputError:
        if memory_gb is None:
            raise
        known = None
    usable = round(memory_gb * GIB) if memory_gb is not None else known.usable_bytes if known else 0
    return Device(
        kind="cuda",
        name=known.name if known else gpu,
        count=count,
        usable_bytes=usable,
        usable_source="given in the spec" if memory_gb is not None or known is None else known.usable_source,
        physical_cores=_cores(),
        bf16=known is None or known.bf16_hardware is not False,
        tflops=known.bf16_dense_tflops if known else None,
        here=False,
    )


def cpu_device() -> Device:
    """This machine's CPU and its memory, within the limit of a container."""
    import psutil

    memory = psutil.virtual_memory()
    total, available = int(memory.total), int(memory.available)
    limit = _container_limit()
    source = "memory of the machine, less 10 %"
    if limit is not None and limit[0] < total:
        total, available = limit[0], min(available, limit[0] - limit[1])
        source = "memory limit of this container, less 10 %"
    return Device(
        kind="cpu",
        name="CPU",
        count=1,
        usable_bytes=round(total * (1 - HOST_RESERVE_SHARE)),
        usable_source=source,
        free_bytes=available,
        physical_cores=_cores(),
        bf16=False,
    )


def _named(visible: str) -> list[str]:
    """The devices that CUDA_VISIBLE_DEVICES names; as CUDA reads it, the first negative one ends the list."""
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return names[: next((k for k, name in enumerate(names) if name.startswith("-")), len(names))]


def _cores() -> int:
    import psutil

    return int(psutil.cpu_count(logical=False) or os.cpu_count() or 1)


def _container_limit() -> tuple[int, int] | None:
    """(limit, in use) of the control group this process is in; null where there is none."""
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            text = Path(limit).read_text("ascii").strip()
            if text != "max":
                return int(text), int(Path(used).read_text("ascii"))
        except (OSError, ValueError):
            continue
    return None


def _cuda_device() -> Device | None:
    """The NVIDIA GPU that CUDA calls the first, by its driver; null without one, or without torch for CUDA."""
    return ask_driver(_first_gpu) if _torch_has_cuda() else None


def _first_gpu(nvml: Any) -> Device | None:
    count = int(nvml.nvmlDeviceGetCount())
    if count == 0:
        return None
    handle = first_visible(nvml)
    name = nvml.nvmlDeviceGetName(handle)
    name = name.decode() if isinstance(name, bytes) else str(name)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    major, _ = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Device(
        kind="cuda",
        name=name.removeprefix("NVIDIA "),
        count=count,
        usable_bytes=round(int(memory.total) * TORCH_OF_DRIVER),
        usable_source=f"total of the driver times {TORCH_OF_DRIVER}",
        free_bytes=int(memory.free),
        physical_cores=_cores(),
        bf16=int(major) >= 8,
        tflops=_tflops(name),
        host_bytes=cpu_device().usable_bytes,
        driver=str(nvml.nvmlSystemGetDriverVersion()),
    )


def _tflops(name: str) -> float | None:
    try:
        return find_gpu(name).bf16_dense_tflops
    except InputError:
        return None


def _torch_has_cuda() -> bool:
    """Whether the installed torch was built for CUDA, without importing it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return not version("torch").endswith("+cpu")
    except PackageNotFoundError:
        return False
