"""Authority: each step forward was decided by who was allowed, on what was shown. Replays the run under its policy."""

from __future__ import annotations

from collections import Counter

from flows.audit.history import History
from flows.audit.report import Checks, Part
from flows.folding import RunState, advance
from flows.gatefiles import load_proposal
from flows.steps import Done, OpenGate, Propose, Rejected, Release, RunStage, next_step
from specs.canonical import digest, sha256_file
from specs.criteria import blocked
from specs.errors import GatewrightError, PolicyRefused
from specs.events import (
    AttemptPublished,
    AttemptReserved,
    DecisionRecorded,
    Event,
    GateOpened,
    Payload,
    ProposalMade,
    ReleasePublished,
    RunCreated,
    RunFinished,
    RunRejected,
)
from specs.policy import Policy, check


def authority(history: History) -> Part:
    """The steps of authority."""
    checks = Checks()
    policy, faults = _policy(history)
    checks.add("the policy is the one that the run began with", faults, _described(policy))
    found: dict[str, list[str]] = {"shown": [], "once": [], "allowed": [], "order": [], "blocked": []}
    state = RunState()
    seen: set[tuple[str, int]] = set()
    for event, payload in zip(history.events, history.payloads, strict=True):
        if isinstance(payload, DecisionRecorded):
            _decision(found, state, event, payload, policy, seen)
        else:
            _transition(found, history, state, event, payload)
        advance(state, event)
    count = f"{len(seen)} decisions"
    checks.add("each decision names a gate that was open, with the digest of what it showed", found["shown"], count)
    checks.add("each gate and round was decided once", found["once"], count)
    checks.add("each decision was allowed by the policy", found["allowed"], count)
    checks.add("each gate said truly whether a blocking criterion had failed", found["blocked"], count)
    checks.add(
        "nothing ran, was released or ended without its decision", found["order"], f"{len(history.events)} events"
    )
    _persons(checks, history)
    return checks.part()


def _policy(history: History) -> tuple[Policy | None, list[str]]:
    policy = history.policy()
    frozen = [created.policy for _, created in history.of(RunCreated)]
    path = history.run_dir / "policy.json"
    if policy is None or not frozen:
        return None, ["policy.json cannot be read, so that no right to decide can be verified"]
    if sha256_file(path) != frozen[0]:
        return None, ["policy.json was changed, so that no right to decide can be verified"]
    return policy, []


def _described(policy: Policy | None) -> str:
    if policy is None:
        return ""
    names = ", ".join(a.id for a in policy.approvers)
    return f"approvers: {names}" + ("; solo: every decision is self-approved" if policy.solo else "")


def _decision(
    found: dict[str, list[str]],
    state: RunState,
    event: Event,
    payload: DecisionRecorded,
    policy: Policy | None,
    seen: set[tuple[str, int]],
) -> None:
    decision = payload.decision
    where = f"event {event.sequence}: {decision.choice} on {decision.gate} round {decision.round}"
    gate = state.gates.get((decision.gate, decision.round))
    if gate is None:
        found["shown"].append(f"{where}: that gate was not open")
    elif gate.digest != decision.digest:
        found["shown"].append(f"{where}: it names another digest than the gate's")
    if decision.run != event.run:
        found["shown"].append(f"{where}: it was made on run {decision.run}")
    if (decision.gate, decision.round) in seen:
        found["once"].append(f"{where}: it was decided before")
    seen.add((decision.gate, decision.round))
    if event.actor != decision.actor:
        found["allowed"].append(f"{where}: recorded by {event.actor}, decided by {decision.actor}")
    if policy is None:
        found["allowed"].append(f"{where}: not verifiable without the policy")
        return
    if decision.self_approved != policy.solo:
        found["allowed"].append(f"{where}: it does not say truly whether it is self-approved")
    finished = state.finished(decision.gate)
    failed = finished is not None and blocked(finished.verdicts or ())
    try:
        check(policy, decision, failed)
    except PolicyRefused as error:
        found["allowed"].append(f"{where}: {error.message}")


def _transition(found: dict[str, list[str]], history: History, state: RunState, event: Event, payload: Payload) -> None:
    where = f"event {event.sequence}: {payload.kind}"
    match payload:
        case ProposalMade():
            due = [next_step(state), next_step(state, retry=False)]
            if not any(isinstance(s, Propose) and (s.gate, s.round) == (payload.gate, payload.round) for s in due):
                found["order"].append(f"{where}: gate {payload.gate} round {payload.round} was not due")
        case GateOpened():
            step = next_step(state)
            if not (isinstance(step, OpenGate) and (step.gate, step.round) == (payload.gate, payload.round)):
                found["order"].append(f"{where}: gate {payload.gate} round {payload.round} was not due")
            finished = state.finished(payload.gate)
            if payload.blocked != (finished is not None and blocked(finished.verdicts or ())):
                found["blocked"].append(f"{where}: {payload.gate} round {payload.round} says blocked={payload.blocked}")
        case AttemptReserved():
            found["order"] += [f"{where}: {fault}" for fault in _attempt(history, state, payload)]
        case AttemptPublished():
            attempt = state.current(payload.stage)
            again = attempt is not None and attempt.state == "published" and attempt.evidence == payload.evidence
            if attempt is None or attempt.number != payload.attempt or not (again or attempt.state == "reserved"):
                found["order"].append(f"{where}: {payload.stage} {payload.attempt} was not running")
        case ReleasePublished():
            if not isinstance(next_step(state), Release):
                found["order"].append(f"{where}: the release gate was not approved")
        case RunFinished():
            if not isinstance(next_step(state), Done):
                found["order"].append(f"{where}: something was still to do")
        case RunRejected():
            if not isinstance(next_step(state), Rejected):
                found["order"].append(f"{where}: nobody rejected")


def _attempt(history: History, state: RunState, reserved: AttemptReserved) -> list[str]:
    step = next_step(state)
    name = f"{reserved.stage} {reserved.attempt}"
    if not isinstance(step, RunStage) or (step.stage, step.attempt) != (reserved.stage, reserved.attempt):
        return [f"{name} was not due: no approval stands for it"]
    try:
        parameters = digest(load_proposal(history.run_dir, step.proposal).parameters)
    except GatewrightError as error:
        return [f"{name}: its approved proposal cannot be read: {error.message}"]
    return [] if parameters == reserved.parameters else [f"{name} ran with other parameters than were approved"]


def _persons(checks: Checks, history: History) -> None:
    decisions = [payload.decision for _, payload in history.of(DecisionRecorded)]
    ways = Counter(d.authentication for d in decisions)
    said = ", ".join(f"{count} {way}" for way, count in sorted(ways.items())) or "none"
    claims = ways["unauthenticated"]
    limit = f"; {claims} of {len(decisions)} are claims: who typed the name cannot be verified" if claims else ""
    terminal = "; terminal confirmations rest on this machine's user accounts" if ways["terminal"] else ""
    checks.add("who decided, as far as it can be known", [], said + limit + terminal)
