"""The append-only files of a training, and how they are cut when a resumed worker goes back to a checkpoint."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from specs.errors import WorkerError
from specs.files import storage_errors

CUT_ON_RESUME = ("metrics.jsonl", "micro_batches.jsonl", "fed.jsonl")
SESSIONS = "sessions.jsonl"
MEMORY = "memory.jsonl"


class Logbook:
    """JSON lines in one folder. Every line reaches the system at once, and the disk with each checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, record: dict[str, Any]) -> None:
        """Append one record; NaN and infinity are null."""
        line = json.dumps(_finite(record), ensure_ascii=False, allow_nan=False) + "\n"
        path = self.folder / name
        with storage_errors(path), path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(line)

    def read(self, name: str) -> list[dict[str, Any]]:
        """The records of a file; none when it does not exist. A last line without its end is left out."""
        path = self.folder / name
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]

    def offsets(self) -> dict[str, int]:
        """Sizes in bytes of the files that a resume cuts, after they have reached the disk."""
        sizes = {}
        for name in CUT_ON_RESUME:
            path = self.folder / name
            with storage_errors(path), path.open("ab") as file:
                os.fsync(file.fileno())
                sizes[name] = file.tell()
        return sizes

    def cut(self, offsets: dict[str, int]) -> None:
        """Bring the files back to what they were at a checkpoint; without offsets, to nothing.

        Raises `WorkerError` when a file is shorter than the checkpoint knew it.
        """
        for name in CUT_ON_RESUME:
            path, wanted = self.folder / name, offsets.get(name, 0)
            size = path.stat().st_size if path.exists() else 0
            if size < wanted:
                raise WorkerError(
                    f"{path} has {size} bytes, but the checkpoint was written when it had {wanted}",
                    "the file was changed or moved: restore it, or start this stage again with a new attempt",
                )
            if path.exists():
                with storage_errors(path), path.open("r+b") as file:
                    file.truncate(wanted)
                    os.fsync(file.fileno())


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value
