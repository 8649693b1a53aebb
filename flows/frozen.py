"""The policy that a run began with: read, and compared with its digest in the ledger, before anything rests on it."""

from __future__ import annotations

from pathlib import Path

from flows.run_state import RunState
from specs.canonical import sha256_bytes
from specs.errors import DecisionRefused
from specs.policy import Policy, read_frozen


def frozen_policy(state: RunState, run_dir: Path) -> Policy:
    """The policy that the run began with. Raises `DecisionRefused` when its file is not the one that was frozen."""
    path = run_dir / "policy.json"
    data = path.read_bytes() if path.is_file() else b""
    if state.created is None or sha256_bytes(data) != state.created.policy:
        raise DecisionRefused(
            f"{path.name} is not the policy that the run began with", "restore it from a backup; a run keeps its policy"
        )
    return read_frozen(data)
