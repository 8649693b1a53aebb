"""Safetensors read with NumPy alone, so that trained weights are checked by code that did not write them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1", "I8": "i1", "BF16": "<u2"}


class TensorFile:
    """One file: names, and each tensor as float64 or as raw bytes. Raises `ValueError` for a file that is cut."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if not 0 < size <= path.stat().st_size - 8:
                raise ValueError(f"{path.name} is no safetensors file, or is cut")
            header: dict[str, Any] = json.loads(file.read(size))
        header.pop("__metadata__", None)
        self.start = 8 + size
        self.entries: Mapping[str, dict[str, Any]] = header
        end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        if self.start + end != path.stat().st_size:
            raise ValueError(f"{path.name} is cut")

    def raw(self, name: str) -> bytes:
        """The stored bytes, with dtype and shape in front."""
        entry = self.entries[name]
        first, last = entry["data_offsets"]
        with self.path.open("rb") as file:
            file.seek(self.start + first)
            return f"{entry['dtype']} {entry['shape']} ".encode() + file.read(last - first)

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """The values as float64."""
        import numpy as np

        entry = self.entries[name]
        first, last = entry["data_offsets"]
        with self.path.open("rb") as file:
            file.seek(self.start + first)
            stored = np.frombuffer(file.read(last - first), dtype=_DTYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":
            stored = (stored.astype("<u4") << 16).view("<f4")
        return stored.reshape(entry["shape"]).astype("f8")


def tensor_files(folder: Path) -> list[TensorFile]:
    """Every safetensors file of a folder, by name."""
    return [TensorFile(path) for path in sorted(folder.glob("*.safetensors"))]


def adapter_norm(folder: Path) -> float:
    """Frobenius norm over all layers of B times A, unscaled; of the trained tensors that come in no pair, their own."""
    total = 0.0
    for file in tensor_files(folder):
        for name in file.entries:
            if ".lora_A." in name:
                a, b = file.array(name), file.array(name.replace(".lora_A.", ".lora_B."))
                total += float(((b.T @ b) * (a @ a.T)).sum())  # |BA|^2 = trace(B'B AA'), without forming BA
    return math.sqrt(max(total, 0.0))


def model_change(trained: Path, base: Path) -> float:
    """Frobenius norm of trained minus base weights, over the tensors that both folders hold under one name."""
    bases = {name: file for file in tensor_files(base) for name in file.entries}
    total = 0.0
    for file in tensor_files(trained):
        for name in file.entries:
            if name in bases:
                total += float(((file.array(name) - bases[name].array(name)) ** 2).sum())
    return math.sqrt(total)


def differing_tensors(one: Path, other: Path, share: float = 0.0) -> int:
    """Tensors whose bytes, dtype or shape differ between two folders, and those that only one of them holds.

    With `share`, bytes may differ as long as the norm of the difference is at most so much of the tensor's own.
    """
    left = {name: file for file in tensor_files(one) for name in file.entries}
    right = {name: file for file in tensor_files(other) for name in file.entries}
    return sum(_differs(name, left, right, share) for name in left.keys() | right.keys())


def _differs(name: str, left: Mapping[str, TensorFile], right: Mapping[str, TensorFile], share: float) -> bool:
    if name not in left or name not in right:
        return True
    if left[name].raw(name) == right[name].raw(name):
        return False
    one, other = left[name].array(name), right[name].array(name)
    if not share or one.shape != other.shape:
        return True
    distance, norm = float(((one - other) ** 2).sum()), float((one**2).sum())
    return not distance <= share**2 * norm  # NaN differs


def trained_folder(artifacts: Path) -> Iterator[tuple[str, Path]]:
    """(`adapter` or `model`, folder) of what an attempt trained."""
    for kind in ("adapter", "model"):
        if list((artifacts / kind).glob("*.safetensors")):
            yield kind, artifacts / kind
