"""How small trials ended: what their worker leaves in the folder of each, and what the parent writes of one that died.

The parent writes only where a worker is gone. Whatever ended is not run again by a later start.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specs.files import write_json
from specs.trials import TrialEnd
from tasks.training.logbook import METRICS

STARTED, ENDED = "started.json", "ended.json"
DIVERGED, DIED, LEFT_OUT = "diverged.json", "died.json", "left_out.json"

_ENDS: Mapping[str, TrialEnd] = {DIED: "died", LEFT_OUT: "left_out", DIVERGED: "diverged", "result.json": "ended"}


def end_of(out: Path) -> TrialEnd | None:
    """How the trial of this folder ended; null where it has not."""
    return next((end for name, end in _ENDS.items() if (out / name).is_file()), None)


def begin(out: Path) -> None:
    """Note when a trial starts. A trial with this note and without an end was cut off."""
    now = time.time()
    write_json(out / STARTED, {"at": datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds"), "unix": now})


def finish(out: Path) -> None:
    """Note how long a trial took."""
    write_json(out / ENDED, {"seconds": _since(out)})


def diverge(out: Path, reason: str) -> None:
    """Note that a loss or gradient was not finite."""
    write_json(out / DIVERGED, {"reason": reason})


def die(out: Path, reason: str) -> None:
    """Note that the worker died in the middle of this trial."""
    write_json(out / DIED, {"reason": reason})
    finish(out)


def leave_out(out: Path, reason: str) -> None:
    """Note that a trial is not run, because what it would be compared with died."""
    write_json(out / LEFT_OUT, {"reason": reason})


def was_cut_off(out: Path) -> bool:
    """Whether a trial began and did not come to an end."""
    return (out / STARTED).is_file() and end_of(out) is None


def reason_of(out: Path) -> str:
    """Why a trial did not end as it should; empty for one that did."""
    for name in (DIED, LEFT_OUT, DIVERGED):
        if (out / name).is_file():
            return str(_document(out / name).get("reason", ""))
    return ""


def times_of(out: Path) -> tuple[str, float | None]:
    """(when it started, the seconds it took); empty and null where that was not noted."""
    return str(_document(out / STARTED).get("at", "")), _document(out / ENDED).get("seconds")


def steps_of(out: Path) -> int:
    """Optimizer steps that were logged."""
    path = out / METRICS
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def _since(out: Path) -> float | None:
    began = _document(out / STARTED).get("unix")
    return None if began is None else round(max(0.0, time.time() - began), 3)


def _document(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_bytes()) if path.is_file() else {}
    return found if isinstance(found, dict) else {}
