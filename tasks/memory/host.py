"""Host memory and disk of a training, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.memory.settings import FRAMEWORK_BYTES, TraceSettings
from tasks.memory.traced import Trace

CHECKPOINTS_ON_DISK = 3
"""Two kept and the one being written."""
SHARED_BYTES = 96 * 2**20
"""Of the framework, what the ranks of a machine have once: pages of library files. Measured after imports and a step of
torch 2.13 (CPU), transformers 5.23, peft 0.21: 417 MiB resident, 96 of them clean pages of files (`smaps_rollup`). What
the CUDA libraries add on the host is not measured."""
ONE_LOADS = ("fsdp", "zero3")
"""Schemes under which one rank reads the weights and sends the others their shards; else every rank reads them."""


@dataclass(frozen=True)
class Host:
    """Bytes of host memory at the peak of loading or saving, and bytes on disk for checkpoints and the result.

    `pinned_bytes` are part of the peak: page-locked, so that the system can neither move nor swap them.
    """

    peak_bytes: int
    disk_bytes: int
    pinned_bytes: int


def host(trace: Trace, settings: TraceSettings, offloaded_bytes: float = 0.0) -> Host:
    """What the ranks of one machine take together; `offloaded_bytes` are pinned by each of them.

    On a GPU the host holds the framework of every rank and, while loading, the weights as they lie in their files;
    while saving, trained weights and optimizer states, gathered once. Paged optimizer states stay. On a CPU the host
    is the device: only the framework and what saving copies are counted here.
    """
    saved = trace.trainable_bytes + trace.state_bytes
    ranks = settings.ranks_per_node
    framework = frameworks(ranks)
    readers = 1 if settings.sharding in ONE_LOADS else ranks
    loaded = trace.weight_bytes * readers if settings.device == "cuda" else 0
    pinned = round(offloaded_bytes) * ranks
    paged = trace.paged_bytes * ranks
    return Host(
        framework + max(loaded, saved) + paged + pinned, saved * CHECKPOINTS_ON_DISK + trace.trainable_bytes, pinned
    )


def frameworks(ranks: int) -> int:
    """What so many processes of one machine hold before any model."""
    return SHARED_BYTES + ranks * (FRAMEWORK_BYTES["cpu"] - SHARED_BYTES)
