"""Catalogs of accelerators and model architectures, each fact with its source and confidence. Needs no torch."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import Field

from specs.base import Strict
from specs.card_names import DRIVER, begins, key, spellings, squeezed
from specs.errors import InputError, ModelError

Confidence = Literal["high", "medium", "low"]

GIB = 2**30
TORCH_OF_DRIVER = 0.97
"""What torch sees of what the driver reports, where only the latter is published: the least of 13 published pairs."""
CONSUMER_SHARE, OTHER_SHARE = 0.98, 0.91
"""What torch sees of the nominal size (GiB) where nothing is published: the least published ratio of consumer cards
(RTX 5090), and of all cards (T4, which spends memory on error correction)."""
LAPTOP_SHARE = 0.966
"""The same of laptop cards, whose driver's part weighs more: the published ratio of the RTX 3060 with 6 GB."""
FILLED_FROM, FILLED_TO = 0.8, 0.9
"""The share of usable memory that a plan fills: below it the next plan up is proposed, above it nothing is, and the
stress test blocks. The only place where it stands."""


class Gpu(Strict):
    """One accelerator of the catalog. `null` where no source says."""

    name: str
    vendor: str
    vram_gb: float
    memory_bandwidth_gb_s: float | None
    bf16_dense_tflops: float | None
    bf16_hardware: bool | None
    interconnect: str | None
    nvlink_gb_s_bidirectional: float | None
    host_bus: str | None
    compute_capability: str | None
    tdp_w: float | None
    nvidia_smi_total_mib: float | None
    torch_total_gib: float | None = Field(description="what torch sees: the memory a process can have")
    source: str
    confidence: Confidence
    notes: str

    @property
    def usable_bytes(self) -> int:
        """Memory a process can have: what torch reports, else what the driver reports, else a share of nominal."""
        if self.torch_total_gib is not None:
            return round(self.torch_total_gib * GIB)
        if self.nvidia_smi_total_mib is not None:
            return round(self.nvidia_smi_total_mib * 2**20 * TORCH_OF_DRIVER)
        return round(self.vram_gb * GIB * self._nominal_share)

    @property
    def laptop(self) -> bool:
        """Whether it is soldered into a laptop: nobody adds it to a machine, and heat limits it."""
        return self.name.endswith("Laptop")

    @property
    def _nominal_share(self) -> float:
        if self.laptop:
            return LAPTOP_SHARE
        return CONSUMER_SHARE if re.match(r"(RTX|TITAN) (\d{4}\b|RTX)", self.name) else OTHER_SHARE

    @property
    def usable_source(self) -> str:
        """Where `usable_bytes` comes from."""
        if self.torch_total_gib is not None:
            return "published total of torch"
        if self.nvidia_smi_total_mib is not None:
            return f"published total of the driver times {TORCH_OF_DRIVER}"
        return f"nominal size times {self._nominal_share}"


class ModelArchitecture(Strict):
    """One model of the catalog: the values of its config.json that shape memory."""

    id: str
    aliases: list[str]
    model_type: str
    config: dict[str, Any]
    params_total: int | None
    published_params: int | None
    source: str
    confidence: Confidence
    notes: str

    @property
    def architecture(self) -> dict[str, Any]:
        """As config.json would have it."""
        return {**self.config, "model_type": self.model_type}


def _read(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(files("specs").joinpath("data", name).read_text("utf-8"))
    return rows


@cache
def gpus() -> tuple[Gpu, ...]:
    """All accelerators of the catalog."""
    return tuple(Gpu.model_validate(row) for row in _read("gpus.json"))


@cache
def models() -> tuple[ModelArchitecture, ...]:
    """All models of the catalog."""
    return tuple(ModelArchitecture.model_validate(row) for row in _read("model_configs.json"))


def find_gpu(name: str) -> Gpu:
    """The accelerator of that name, however it is spelt (`card_names.py`).

    A short name (`A100`) that fits several finds the one with the least memory. Raises `InputError` with the
    nearest names when nothing fits.
    """
    wanted = key(DRIVER.get(" ".join(name.lower().split()).removeprefix("nvidia "), name))
    found = [g for g in gpus() if key(g.name) == wanted or squeezed(g.name) == squeezed(name)]
    if not found:
        found = [g for g in gpus() if wanted in spellings(g.name, g.vram_gb)]
    if not found:
        begun = [g for g in gpus() if any(begins(one, wanted) for one in spellings(g.name, g.vram_gb))]
        found = [g for g in begun if not g.laptop or "laptop" in wanted]
    if found:
        return min(found, key=lambda g: (g.usable_bytes, g.name))
    near = ", ".join(_near(wanted))
    raise InputError(
        f"no accelerator named {name!r} in the catalog" + (f"; near it: {near}" if near else ""),
        "take a name of the catalog, without a number of cards; for a card that it lacks say its memory: --memory-gb "
        "of `gatewright plan`, or memory_gb in hardware",
    )


def _near(wanted: str) -> list[str]:
    names = {one: g.name for g in gpus() for one in spellings(g.name, g.vram_gb)}
    close = get_close_matches(wanted, names, n=12, cutoff=0.5)
    return list(dict.fromkeys(names[one] for one in close))[:3]


def find_model(name: str) -> ModelArchitecture:
    """The architecture of a hub id, alias, or last part of an id. Raises `ModelError` with the nearest names."""
    wanted = name.lower()
    by_name = {n.lower(): m for m in models() for n in (*m.aliases, m.id)}
    if wanted in by_name:
        return by_name[wanted]
    short = {n.rpartition("/")[2]: m for n, m in by_name.items()}
    if wanted in short:
        return short[wanted]
    close = get_close_matches(wanted, [*by_name, *short], n=3, cutoff=0.5)
    near = f"; near it: {', '.join(close)}" if close else ""
    raise ModelError(
        f"no model named {name!r} in the catalog{near}", "give a folder or a config.json: any architecture is traced"
    )
