"""What NVIDIA's driver says through its management library (NVML), asked where it can be asked."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def ask_driver(question: Callable[[Any], Answer]) -> Answer | None:
    """The answer to a question put with `pynvml`, which stays open for it.

    Null where there is no library, no driver, no such device, or no right to ask.
    """
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        try:
            return question(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None


def first_visible(nvml: Any) -> Any:
    """The driver's handle of the GPU that CUDA calls 0: CUDA_VISIBLE_DEVICES names it by number or by identity."""
    name = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    if name.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(name)
    return nvml.nvmlDeviceGetHandleByIndex(int(name) if name.isdecimal() else 0)
