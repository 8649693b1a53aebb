"""A run as lists show it, and the version of the tables; needs no database library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

HEAD = "0002"
"""The newest migration; a test compares it with the migrations folder."""


@dataclass(frozen=True)
class RunRow:
    """A run as lists show it. `state` and `stage` repeat what its events say."""

    run: str
    project: str
    state: str
    stage: str
    created_at: datetime
    project_dir: Path


def run_row(row: Mapping[str, Any]) -> RunRow:
    """From a row of the table `runs`."""
    created = datetime.fromisoformat(row["created_at"])
    return RunRow(row["run"], row["project"], row["state"], row["stage"], created, Path(row["project_dir"]))
