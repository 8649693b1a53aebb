"""Settings of a checkpoint against those of now: what differs stops a resume, unless a person confirmed just that.

The refused table lies beside the logs (`differences.json`) until a resume passes; what was confirmed comes from the
ledger (`confirmed.json`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.base import Strict
from specs.errors import ResumeRefused
from specs.files import storage_errors, write_json
from specs.parameters import ADDED_LATER
from specs.resuming import Changed, table, unconfirmed

DIFFERENCES, CONFIRMED = "differences.json", "confirmed.json"

NOT_NUMERIC = frozenset(
    {"training.save_steps", "training.save_minutes", "training.keep_checkpoints", "versions.safetensors"}
)
"""Settings that may differ on resume: they change what is on the disk, not a single bit of the training."""


class Differences(Strict):
    """`differences.json` and `confirmed.json`."""

    rows: list[Changed]


def changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[Changed]:
    """What differs and matters, by name. Pure."""
    was = {f"training.{name}": value for name, value in ADDED_LATER.items()} | dict(was)
    names = sorted((was.keys() | now.keys()) - NOT_NUMERIC)
    differing = (name for name in names if was.get(name) != now.get(name))
    return [Changed(what=n, was=str(was.get(n, "-")), now=str(now.get(n, "-"))) for n in differing]


def read_rows(path: Path) -> list[Changed]:
    """The rows of a file; none where it is not there, or is none."""
    try:
        return Differences.model_validate(json.loads(path.read_bytes())).rows
    except (OSError, ValueError):
        return []


def write_rows(path: Path, rows: Sequence[Changed]) -> None:
    """Write rows for whoever comes after; without any there is no such file."""
    if rows:
        write_json(path, Differences(rows=list(rows)))
        return
    with storage_errors(path):
        path.unlink(missing_ok=True)


def require_confirmed(rows: Sequence[Changed], out: Path, checkpoints: Path, *, writes: bool = True) -> None:
    """Raise `ResumeRefused` with a table of what differs and nobody confirmed. All ranks do; one `writes` it to `out`.

    The file has every row, those too that were confirmed before: a person confirms the whole of it or nothing.
    """
    open_rows = unconfirmed(rows, read_rows(out / CONFIRMED))
    if writes:
        write_rows(out / DIFFERENCES, rows if open_rows else [])
    if open_rows:
        raise ResumeRefused(
            "the checkpoint was written under other settings, and the rest would be another training:\n"
            + "\n".join(table(open_rows)),
            f"put these settings back and `gatewright resume`, or delete {checkpoints} to train from the beginning",
        )
