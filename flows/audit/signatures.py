"""The signatures of a run's records, verified again with the keys in its frozen policy over the stored fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flows import signing
from flows.overruling import GoesOn
from specs.decisions import Decision, signed_bytes
from specs.errors import GatewrightError
from specs.events import Event, RunClosed, WorkHandedIn
from specs.policy import Policy


class Signatures:
    """Verifies the signatures of decisions, and counts what it saw."""

    def __init__(self, policy: Policy | None) -> None:
        self.policy, self.count, self.unsigned = policy, 0, 0

    def faults(self, event: Event, decision: Decision) -> list[str]:
        """What is wrong with the signature of one decision, over its fields as they were stored."""
        where = f"event {event.sequence}: {decision.choice} on {decision.gate} round {decision.round}"
        if not decision.signature:
            self.unsigned += 1
            return [f"{where}: it says it is signed, and is not"] if decision.authentication == "ssh_signature" else []
        self.count += 1
        if decision.authentication != "ssh_signature":
            return [f"{where}: it is signed, and says {decision.authentication}"]
        try:
            data = signed_bytes(event.payload["decision"])
            signing.verify(
                _keys(self.policy, decision.actor), decision.actor, signing.NAMESPACE, data, decision.signature
            )
        except GatewrightError as error:
            return [f"{where}: {error.message}"]
        return []

    def seen(self) -> str:
        """How many were signed."""
        return f"{self.count} signed, {self.unsigned} not signed"


def signature_faults(
    where: str,
    event: Event,
    said: RunClosed | GoesOn | WorkHandedIn,
    policy: Policy | None,
    signed: Callable[[str, str, Mapping[str, Any]], bytes],
) -> list[str]:
    """What is wrong with the signature of a record outside of gates; `signed` gives the bytes that it is over."""
    faults = []
    if (said.authentication == "ssh_signature") != bool(said.signature):
        faults.append(f"{where}: it does not say truly whether it is signed")
    if not said.signature:
        return faults
    try:
        data = signed(event.run, event.actor, event.payload)
        signing.verify(_keys(policy, event.actor), event.actor, signing.NAMESPACE, data, said.signature)
    except GatewrightError as error:
        faults.append(f"{where}: {error.message}")
    return faults


def _keys(policy: Policy | None, who: str) -> list[str]:
    """The keys of a person; none where nothing says who may decide."""
    person = policy.approver(who) if policy else None
    return list(person.keys) if person else []
