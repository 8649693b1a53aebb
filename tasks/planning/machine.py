"""The cards of a plan and what joins them: links, host bus, host memory. Rates are stated, each with its source."""

from __future__ import annotations

import re
import sys
import unicodedata

from pydantic import Field

from specs.base import Strict
from specs.errors import InputError
from specs.hardware import Gpu, find_gpu
from tasks.memory.devices import Device, named, this_device

PCIE_GB_S = {"3.0": 15.75, "4.0": 31.5, "5.0": 63.0, "6.0": 126.0}
"""One direction of 16 lanes, of the standard."""
NODE_LINK_GB_S = 12.5
"""Between machines where nothing is given: 100 Gbit/s Ethernet or InfiniBand EDR."""
HOST_MEMORY_GB_S = 60.0
"""Where nothing is given: two channels of DDR5-4800 reach 76.8 on paper."""
CPU_TFLOPS, CPU_MEMORY_GB_S = 0.1, 20.0
"""Stand-ins for a CPU: times are given only where a stress test scales them, so that only their ratio matters."""
DISK_GB_S = 1.0
"""Where nothing is given: a modest NVMe drive."""
MOST_CARDS = 9999
"""Cards of one machine that can be asked for; far above any, so that a slip of the keys is seen."""


class Machine(Strict):
    """`device.count` cards in each of `nodes` machines. Rates in GB/s, one direction, before losses."""

    device: Device
    nodes: int = Field(1, ge=1)
    tflops: float | None = Field(None, description="dense 16-bit rate of one card; null: not known, no time is given")
    memory_gb_s: float | None = Field(None, description="bandwidth of a card's memory")
    link_gb_s: float | None = Field(None, description="between cards of a machine, one direction")
    nvlink: bool = False
    host_bus_gb_s: float | None = Field(None, description="between a card and the host")
    node_link_gb_s: float = NODE_LINK_GB_S
    host_memory_gb_s: float = HOST_MEMORY_GB_S
    disk_gb_s: float = DISK_GB_S
    price_per_card_hour: float | None = None
    flash: bool = Field(True, description="compute capability 8.0 or newer")
    expandable: bool = Field(True, description="whether the allocator has expandable segments: on Linux it has")

    @property
    def cards(self) -> int:
        """All cards."""
        return self.device.count * self.nodes


def parse_cards(text: str) -> tuple[str, int]:
    """`NAME` or `NAME:N`, also `N x NAME`. Raises `InputError` for a count that is none or too large, and where no card
    is named."""
    plain = unicodedata.normalize("NFKC", text)
    before = re.fullmatch(r"\s*(\d+)\s*[x×*]\s*(\S.*)", plain)
    plain = f"{before[2]}:{before[1]}" if before and ":" not in plain else plain
    name, _, count = plain.rpartition(":") if ":" in plain else (plain, "", "1")
    name, count, hint = name.strip(), count.strip(), "write a name, or NAME:N such as A100:4"
    if not re.fullmatch(r"[1-9][0-9]*", count):
        raise InputError(f"--gpu {text}: {count!r} is not a number of cards", hint)
    if len(count) > len(str(MOST_CARDS)) or int(count) > MOST_CARDS:
        raise InputError(f"--gpu {text}: {count} cards are too many, at most {MOST_CARDS}", hint)
    if not name:
        raise InputError(f"--gpu {text!r} names no card", f"{hint}, or leave --gpu out for this machine")
    return name, int(count)


def machine_named(
    gpu: str | None,
    count: int = 1,
    *,
    nodes: int = 1,
    memory_gb: float | None = None,
    link_gb_s: float | None = None,
    node_link_gb_s: float | None = None,
    host_memory_gb: float | None = None,
    disk_gb: float | None = None,
    price_per_card_hour: float | None = None,
) -> Machine:
    """A machine from the catalog, this one where `gpu` is null; what is given wins over what the catalog says."""
    if gpu is None or gpu.lower() in ("here", "this", "cpu"):
        device = this_device()
        known: Gpu | None = None
        if device.kind == "cuda":
            known = _known(device.name)
    else:
        device = named(gpu, count, memory_gb)
        known = _known(gpu)
    device = device.with_host(host_memory_gb, disk_gb)
    bus = _host_bus(known)
    link, nvlink = _link(known, bus)
    return Machine(
        device=device,
        nodes=nodes,
        tflops=known.bf16_dense_tflops if known else device.tflops,
        memory_gb_s=known.memory_bandwidth_gb_s if known else None,
        link_gb_s=link_gb_s or link,
        nvlink=nvlink if link_gb_s is None else link_gb_s > max(PCIE_GB_S.values()),
        host_bus_gb_s=bus,
        node_link_gb_s=node_link_gb_s or NODE_LINK_GB_S,
        price_per_card_hour=price_per_card_hour,
        flash=_flash(known),
        expandable=not device.here or sys.platform == "linux",
    )


def _known(name: str) -> Gpu | None:
    try:
        return find_gpu(name)
    except InputError:
        return None


def _flash(known: Gpu | None) -> bool:
    capability = known.compute_capability if known else None
    try:
        return capability is None or float(capability) >= 8.0
    except ValueError:
        return True


def _host_bus(known: Gpu | None) -> float | None:
    """GB/s to the host from a text such as `PCIe 4.0 x16`."""
    found = re.search(r"PCIe (\d\.\d) x(\d+)", (known.host_bus or "") if known else "")
    if not found or found[1] not in PCIE_GB_S:
        return None
    return PCIE_GB_S[found[1]] * int(found[2]) / 16


def _link(known: Gpu | None, bus: float | None) -> tuple[float | None, bool]:
    """Between two cards of a machine: NVLink where the card always has it, else the host bus. (GB/s, NVLink)"""
    text = (known.interconnect or "") if known else ""
    if known and known.nvlink_gb_s_bidirectional and text.startswith("NVLink") and "bridge" not in text:
        return known.nvlink_gb_s_bidirectional / 2, True
    return bus, False
