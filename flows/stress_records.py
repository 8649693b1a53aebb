"""The records that a stress test left, as they were published: what is gone or was changed is not read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.run_state import Attempt
from flows.workspace import Workspace
from specs.canonical import sha256_bytes
from specs.errors import GatewrightError
from specs.parameters import TrainingConfiguration
from tasks.planning.measured import Peak, peak_of


class StressRecords:
    """The records of one attempt, none where it is not published."""

    def __init__(self, workspace: Workspace, attempt: Attempt | None) -> None:
        self.workspace = workspace
        self.attempt = attempt if attempt is not None and attempt.state == "published" else None
        self.changed = False
        """Whether a record was asked for that is gone, was changed, or says nothing that can be understood."""

    def training(self) -> TrainingConfiguration | None:
        """What was measured: the configuration the attempt wrote; where earlier versions wrote none, its proposal's."""
        if self.attempt is None:
            return None
        found = self.read("configuration.json")
        if not found and not self.changed:
            proposal = self.workspace.attempt("stress_test", self.attempt.number) / "proposal.json"
            found = _document(proposal).get("parameters", {}).get("training", {})
        try:
            return TrainingConfiguration.model_validate(found) if found else None
        except ValidationError:
            self.changed = True
            return None

    def peak(self) -> Peak | None:
        """The measured peak; null where there is no record of it."""
        data = self._bytes("calibration.json")
        try:
            return peak_of(json.loads(data), sha256_bytes(data)) if data else None
        except (ValueError, KeyError, TypeError):
            self.changed = True
            return None

    def read(self, name: str) -> dict[str, Any]:
        """One record; empty where there is none."""
        data = self._bytes(name)
        found = json.loads(data) if data else {}
        return found if isinstance(found, dict) else {}

    def _bytes(self, name: str) -> bytes | None:
        from flows.measured import published_bytes

        try:
            return published_bytes(self.workspace, self.attempt, name) if self.attempt else None
        except (GatewrightError, OSError):
            self.changed = True
            return None


def _document(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
