"""Gates that run out of time. Time denies, it never approves; and the database's clock tells it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from flows.folding import fold
from flows.frozen import frozen_policy
from flows.ledger import Ledger
from flows.ledger.chain import timestamp
from flows.ledger.store import OWN_ACTOR
from flows.run_state import Gate, RunState
from flows.standing import expired
from specs.errors import DecisionRefused
from specs.events import GateExpired, Payload
from specs.policy import Policy


class _NotDueError(Exception):
    """Somebody decided in between."""


def expire_if_due(ledger: Ledger, run: str, run_dir: Path) -> datetime | None:
    """Deny an open gate of a run if its time is over; returns when it ran out, None when nothing was due."""
    state = fold(ledger.events(run))
    if not state.open_gates or state.terminal:
        return None
    policy = frozen_policy(state, run_dir)
    now = ledger.now()
    if not any(expired(policy, gate, now) for gate in state.open_gates):
        return None

    def judge(state: RunState, now: datetime) -> tuple[Payload, str]:
        due = [payload for gate in state.open_gates if (payload := expiry(policy, gate, now))]
        if state.terminal or not due:
            raise _NotDueError
        return due[0], OWN_ACTOR

    try:
        payload = ledger.settle(run, judge).read()
    except _NotDueError:
        return None
    return payload.expired_at if isinstance(payload, GateExpired) else None


def expiry(policy: Policy, gate: Gate, now: datetime) -> GateExpired | None:
    """The record of a gate that ran out; None while it has time, and once it is closed."""
    ends = expired(policy, gate, now)
    if ends is None:
        return None
    return GateExpired(gate=gate.name, round=gate.round, digest=gate.digest, expired_at=ends)


def expired_error(gate: str, round: int, at: datetime) -> DecisionRefused:
    """What a person is told who comes too late."""
    return DecisionRefused(
        f"gate {gate} round {round} expired at {timestamp(at)}: time denied it, as the policy says",
        "start a new run; policy.expires_after in project.yaml sets how long a gate waits",
    )
