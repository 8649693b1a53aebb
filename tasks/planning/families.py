"""The families of a search: from the cache, else recorded in a process of its own. Needs no torch."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specs import places
from specs.canonical import digest
from specs.files import write_bytes
from specs.parameters import Optimizer
from specs.stages import Progress, Quiet
from tasks.memory.estimate import code_digest, versions
from tasks.memory.family import WINDOWS, Family
from tasks.memory.settings import TraceSettings

PROGRAM = "tasks.planning.families_program"

Families = dict[str, Family]
"""By the digest of their settings."""


def key_of(settings: TraceSettings) -> str:
    """The name of a family within one search."""
    return digest(settings)


def families_for(
    wanted: Iterable[TraceSettings], optimizers: Sequence[Optimizer], longest: int, progress: Progress | None = None
) -> Families:
    """Every family of `wanted` (settings as `family_settings` makes them), recorded where the cache lacks it.

    Raises `ModelError` for a model that cannot be built.
    """
    by_key = {key_of(settings): settings for settings in wanted}
    names = {key: _file(settings, optimizers, longest) for key, settings in by_key.items()}
    found = {key: family for key, name in names.items() if (family := _read(name)) is not None}
    missing = [key for key in by_key if key not in found]
    if missing:
        progress = progress or Quiet()
        progress.start("recording families of configurations", len(missing))
        for key, document in _record([by_key[k] for k in missing], optimizers, longest, progress, missing).items():
            write_bytes(names[key], json.dumps(document).encode())
            found[key] = Family.model_validate(document)
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


def _record(
    wanted: Sequence[TraceSettings], optimizers: Sequence[Optimizer], longest: int, progress: Progress, keys: list[str]
) -> dict[str, Any]:
    from tasks.workers import run_worker

    with tempfile.TemporaryDirectory(prefix="gatewright-plan-") as folder:
        job, out = Path(folder) / "job.json", Path(folder) / "families.json"
        ranks = min(os.cpu_count() or 1, len(wanted))
        document = {
            "settings": [s.model_dump() for s in wanted],
            "optimizers": list(optimizers),
            "longest": longest,
            "out": str(out),
            "ranks": ranks,
        }
        write_bytes(job, json.dumps(document).encode())
        run_worker(PROGRAM, job, Path(folder) / "log.txt", progress, threads=1, ranks=ranks)
        found: dict[str, Any] = {}
        for rank in range(ranks):
            part = json.loads(Path(f"{out}.{rank}").read_bytes())
            found |= {keys[int(number)]: family for number, family in part.items()}
        return found
