"""The Prefect flow with light stages, for a worker: what `flows/pipeline.py` is, without what needs a model."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from flows.pipeline import project_run
from tests.support import light_run

__all__ = ["project_run"]

light_run.install()


def _wait_while_held(context: Any) -> None:
    """A stage that lasts as long as the file `hold` lies in the project; a minute at most."""
    hold: Path = context.project_dir / "hold"
    deadline = time.monotonic() + 60
    while hold.exists() and time.monotonic() < deadline:
        hold.write_text(str(os.getpid()))
        time.sleep(0.05)


light_run.HOW["while_running"] = _wait_while_held
