"""Host memory and disk of a training, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.memory.settings import FRAMEWORK_BYTES, TraceSettings
from tasks.memory.sizes import Trace

CHECKPOINTS_ON_DISK = 3
"""Two kept and the one being written."""


@dataclass(frozen=True)
class Host:
    """Bytes of host memory at the peak of loading or saving, and bytes on disk for checkpoints and the result."""

    peak_bytes: int
    disk_bytes: int


def host(trace: Trace, settings: TraceSettings) -> Host:
    """On a GPU the host holds the framework and, while loading, the weights as they lie in their files; while saving,
    trained weights and optimizer states. Paged optimizer states stay. On a CPU the host is the device: only the
    framework and what saving copies are counted here.
    """
    saved = trace.trainable_bytes + trace.state_bytes
    framework = FRAMEWORK_BYTES["cpu"]
    loaded = trace.weight_bytes if settings.device == "cuda" else 0
    return Host(framework + max(loaded, saved) + trace.paged_bytes, saved * CHECKPOINTS_ON_DISK + trace.trainable_bytes)
