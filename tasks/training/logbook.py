"""The append-only files of a training, and how they are cut when a resumed worker goes back to a checkpoint."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from specs.errors import WorkerError
from specs.files import storage_errors

METRICS = "metrics.jsonl"
MICRO_BATCHES = "micro_batches.jsonl"
CENSUS = "census.jsonl"
CUT_ON_RESUME = (METRICS, MICRO_BATCHES, "fed.jsonl", CENSUS)
SESSIONS = "sessions.jsonl"
MEMORY = "memory.jsonl"
CONTINUITY = "continuity.jsonl"
SPIKES = "spikes.jsonl"
PROBES = "probes.jsonl"
NEVER_CUT = (SESSIONS, MEMORY, CONTINUITY, SPIKES, PROBES)
"""Files that tell about sessions, not about steps: a resume adds to them."""


class Logbook:
    """JSON lines in one folder. Every line reaches the system at once, and the disk with each checkpoint.

    With `writes` false it only reads: of several ranks, one writes.
    """

    def __init__(self, folder: Path, *, writes: bool = True) -> None:
        self.folder = folder
        self.writes = writes
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, record: dict[str, Any]) -> None:
        """Append one record; NaN and infinity are null."""
        if not self.writes:
            return
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

    def read_after(self, name: str, offset: int) -> list[dict[str, Any]]:
        """The complete records from a byte offset on."""
        path = self.folder / name
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(offset)
            return [json.loads(line) for line in file.read().split(b"\n")[:-1]]

    def drop_unfinished(self) -> None:
        """Take away a last line that a power loss left without its end, so that the next record begins a line."""
        for name in NEVER_CUT if self.writes else ():
            path = self.folder / name
            data = path.read_bytes() if path.exists() else b""
            if data and not data.endswith(b"\n"):
                with storage_errors(path), path.open("r+b") as file:
                    file.truncate(data.rfind(b"\n") + 1)

    def sizes(self) -> dict[str, int]:
        """Sizes in bytes of the files that a resume cuts, as they are."""
        paths = {name: self.folder / name for name in CUT_ON_RESUME}
        return {name: path.stat().st_size if path.exists() else 0 for name, path in paths.items()}

    def offsets(self) -> dict[str, int]:
        """Sizes in bytes of the files that a resume cuts, after they have reached the disk."""
        sizes = {}
        for name in CUT_ON_RESUME if self.writes else ():
            path = self.folder / name
            with storage_errors(path), path.open("ab") as file:
                os.fsync(file.fileno())
                sizes[name] = file.tell()
        return sizes

    def cut(self, offsets: dict[str, int]) -> None:
        """Bring the files back to what they were at a checkpoint; without offsets, to nothing.

        Raises `WorkerError` when a file is shorter than the checkpoint knew it.
        """
        for name in CUT_ON_RESUME if self.writes else ():
            path, wanted = self.folder / name, offsets.get(name, 0)
            size = path.stat().st_size if path.exists() else 0
            if size < wanted:
                raise WorkerError(
                    f"{path} has {size} bytes, but the checkpoint was written when it had {wanted}",
                    f"the file was changed or moved: restore it, or delete {self.folder.parent} to train from the "
                    "beginning",
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
