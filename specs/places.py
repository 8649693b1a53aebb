"""Where Gatewright keeps what belongs to no project: converted base models, the Prefect server's data."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`GATEWRIGHT_HOME`, else the user's data folder for gatewright."""
    chosen = os.environ.get("GATEWRIGHT_HOME")
    if chosen:
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_data_dir("gatewright", appauthor=False))


def models() -> Path:
    """Base models converted to local folders, one folder each."""
    return home() / "models"


def prefect_home() -> Path:
    """The Prefect server's database, settings and log."""
    return home() / "prefect"
