"""The families of a search: from the cache, else recorded in a process of its own. Needs no torch."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from specs import places
from specs.base import Strict
from specs.canonical import digest
from specs.errors import GatewrightError, OutOfMemory, WorkerError
from specs.files import keep_if_possible, write_bytes
from specs.parameters import Optimizer
from specs.stages import Progress, Quiet
from tasks.memory.estimate import code_digest, versions
from tasks.memory.family import WINDOWS, Family
from tasks.memory.settings import TraceSettings
from tasks.worker_ends import WorkerDied, said

PROGRAM = "tasks.planning.families_program"
UNRECORDED = "unrecorded"
"""Stands in the place of a family's fields where there is an error instead."""


class Unrecorded(Strict):
    """A family that the model code cannot run, and the error that says why."""

    kind: str = Field(description="class of the error")
    message: str
    hint: str

    @property
    def error(self) -> GatewrightError:
        """The error itself."""
        return said(self.message, {"class": self.kind, "hint": self.hint})


Families = Mapping[str, Family | Unrecorded]
"""By the digest of their settings."""


def key_of(settings: TraceSettings) -> str:
    """The name of a family within one search."""
    return digest(settings)


def families_for(
    wanted: Iterable[TraceSettings], optimizers: Sequence[Optimizer], longest: int, progress: Progress | None = None
) -> Families:
    """Every family of `wanted` (settings as `family_settings` makes them), recorded where the cache lacks it.

    One that cannot be recorded is answered as `Unrecorded`, and tried again the next time. Where none can be, it is the
    model's fault: raises what was said of the first.
    """
    by_key = {key_of(settings): settings for settings in wanted}
    names = {key: _file(settings, optimizers, longest) for key, settings in by_key.items()}
    found: dict[str, Family | Unrecorded] = {k: f for k, name in names.items() if (f := _read(name)) is not None}
    missing = [key for key in by_key if key not in found]
    if missing:
        progress = progress or Quiet()
        progress.start("recording families of configurations", len(missing))
        kept = True
        for key, document in _record([by_key[k] for k in missing], optimizers, longest, progress, missing).items():
            if UNRECORDED in document:
                found[key] = Unrecorded.model_validate(document[UNRECORDED])
                continue
            kept = kept and keep_if_possible(names[key], json.dumps(document).encode(), progress.say)
            found[key] = Family.model_validate(document)
    faults = [family for family in found.values() if isinstance(family, Unrecorded)]
    if faults and len(faults) == len(found):
        raise faults[0].error
    return found


def _file(settings: TraceSettings, optimizers: Sequence[Optimizer], longest: int) -> Path:
    windows = [int(v) < longest for name in WINDOWS if type(v := settings.architecture.get(name)) is int]
    asked = {"settings": settings, "optimizers": list(optimizers), "windows": windows}
    key = digest({"code": code_digest(), "versions": versions(), **asked})
    return places.home() / "accounts" / f"recorded-{key}.json"


def _read(path: Path) -> Family | None:
    """A stored family; none when there is none or it cannot be read, and then it is recorded again."""
    try:
        return Family.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def file_of(folder: str | Path, number: int) -> Path:
    """Where a recorded family of a job lies."""
    return Path(folder) / f"{number}.json"


def begun_of(folder: str | Path, number: int) -> Path:
    """There from when its recording was begun."""
    return Path(folder) / f"{number}.begun"


def _record(
    wanted: Sequence[TraceSettings], optimizers: Sequence[Optimizer], longest: int, progress: Progress, keys: list[str]
) -> dict[str, Any]:
    """Families by key, or why there is none. A process that dies is started again with what is left; what was at work
    when two of them died is left out, with the reason. Raises what ended a process that had begun nothing."""
    from tasks.workers import run_worker

    with tempfile.TemporaryDirectory(prefix="gatewright-plan-") as place:
        folder, job, deaths = Path(place), Path(place) / "job.json", dict[int, int]()
        left, parts = list(range(len(wanted))), min(os.cpu_count() or 1, len(wanted))
        while left:
            document = {
                "settings": [s.model_dump() for s in wanted],
                "numbers": left,
                "optimizers": list(optimizers),
                "longest": longest,
                "folder": place,
                "parts": parts,
            }
            write_bytes(job, json.dumps(document).encode())
            ended: WorkerError | None = None
            try:
                run_worker(PROGRAM, job, folder / "log.txt", progress, threads=1)
            except (WorkerDied, OutOfMemory) as error:
                ended = error
            left = [number for number in left if not file_of(folder, number).exists()]
            if ended is None:
                break
            guilty = [number for number in left if begun_of(folder, number).exists()]
            if not guilty:
                raise ended
            progress.say(f"{ended.message}; {len(left)} of {len(wanted)} families are recorded again")
            for number in guilty:
                begun_of(folder, number).unlink()
                deaths[number] = deaths.get(number, 0) + 1
                if deaths[number] > 1:
                    write_bytes(file_of(folder, number), _twice(ended))
            left, parts = [number for number in left if deaths.get(number, 0) < 2], 1
        return {key: json.loads(file_of(folder, number).read_bytes()) for number, key in enumerate(keys)}


def _twice(ended: WorkerError) -> bytes:
    """What stands in the place of a family at which two processes ended."""
    message = f"two processes ended while they recorded it, the second time: {ended.message}"
    return json.dumps({UNRECORDED: {"kind": "WorkerError", "message": message, "hint": ended.hint}}).encode()
