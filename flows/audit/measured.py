"""Whether a training was approved with what its stress test measured: approved settings, or what its ladder took."""

from __future__ import annotations

from flows.audit.history import History
from flows.gatefiles import load_proposal
from flows.run_state import RunState
from specs.canonical import plain
from specs.errors import GatewrightError
from specs.events import AttemptReserved, MemoryRung
from specs.parameters import leaves


def unmeasured(history: History, state: RunState, reserved: AttemptReserved) -> list[str]:
    """Settings of an approved training that are neither those approved for the stress test nor what its ladder took."""
    attempt = state.current("stress_test")
    if reserved.stage != "train" or attempt is None or not (state.created and state.created.identity):
        return []  # runs older than identities of runs were made when this was no rule of the audit
    try:
        approved, trained = (
            load_proposal(history.run_dir, state.approved_proposal(gate) or "").parameters.get("training", {})
            for gate in ("stress_test", "train")
        )
    except GatewrightError as error:
        return [error.message]
    expected, found = leaves(plain(approved)), leaves(plain(trained))
    for _, rung in history.of(MemoryRung):
        if rung.taken and (rung.stage, rung.attempt) == ("stress_test", attempt.number):
            expected |= rung.changes
    differ = sorted(path for path in expected.keys() | found.keys() if expected.get(path) != found.get(path))
    return [f"{path} is {found.get(path)!r}, measured was {expected.get(path)!r}" for path in differ]
