"""What a measurement of memory is valid for: device, driver, allocator, threads, software. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from specs.canonical import digest
from specs.errors import GuardRefused
from specs.parameters import TrainingConfiguration
from specs.words import compared
from tasks.memory.devices import Device
from tasks.workers import worker_environment

ALLOCATOR = (
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "MALLOC_MMAP_THRESHOLD_",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "OMP_NUM_THREADS",
)
"""Environment variables of a worker that change how memory is had and given back."""

SOFTWARE = ("torch", "transformers", "peft", "accelerate", "bitsandbytes")

_LEVELS = (
    ("AVX512", {"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    ("AVX2", {"avx2", "fma"}),
)
"""torch chooses its CPU kernels by these; other kernels have other buffers and other bits."""


def allocator_settings(training: TrainingConfiguration) -> dict[str, str]:
    """The variables of `ALLOCATOR` that a worker of this configuration gets."""
    environment = worker_environment(training.threads, allocator=training.allocator)
    return {name: environment[name] for name in ALLOCATOR if name in environment}


def environment_of(device: Device, training: TrainingConfiguration) -> dict[str, str]:
    """What a measurement depends on beside the configuration itself, as flat names and texts."""
    found = {
        "device": f"{device.kind}: {device.name}",
        "driver": device.driver,
        "kernels": _capability() if device.kind == "cpu" else "",
        "threads": str(training.threads),
        **{f"allocator.{name}": value for name, value in allocator_settings(training).items()},
        **{f"software.{name}": _version(name) for name in SOFTWARE},
    }
    return {name: value for name, value in sorted(found.items()) if value}


def fingerprint_of(configuration: str, environment: Mapping[str, str]) -> str:
    """One digest over the configuration's fingerprint and what it was measured on."""
    return digest([configuration, dict(environment)])


def differences(was: Mapping[str, str], now: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(what, measured on, now), of everything that differs."""
    names = sorted(was.keys() | now.keys())
    return [(name, was.get(name, "-"), now.get(name, "-")) for name in names if was.get(name) != now.get(name)]


def require_same(document: Mapping[str, Any], device: Device, training: TrainingConfiguration) -> None:
    """Raise `GuardRefused` with a table when this is not what the stress test measured on.

    `document` is its `device.json`; one of an earlier version says nothing of it, and is believed. A device of the
    same kind with less memory is another device as soon as the measured peak passes the usable memory of this one.
    """
    was: dict[str, str] = document.get("environment") or {}
    rows = differences(was, environment_of(device, training)) if was else []
    peak, bound = document.get("peak_bytes"), document.get("usable_bound")
    if peak and bound and peak > bound * device.usable_bytes:
        usable = [f"{int(size) / 2**30:.2f} GiB" for size in (document["usable_bytes"], device.usable_bytes)]
        rows.append(("usable memory", usable[0], usable[1]))
    if not rows:
        return
    lines = compared(("what", "measured on", "now"), rows)
    raise GuardRefused(
        "the stress test measured this configuration on something else:\n" + "\n".join(lines),
        "go on where it was measured, or measure here: `gatewright resume --anew` opens the gate of train again, "
        "`gatewright rework --stage stress_test` leads back",
    )


def _capability() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
    except OSError:
        return ""
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    flags = set(line.partition(":")[2].split())
    return next((name for name, needed in _LEVELS if needed <= flags), "")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
