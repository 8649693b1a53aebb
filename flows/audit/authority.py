"""Authority: each step forward was decided by who was allowed, on what was shown. Replays the run under its policy."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from flows.audit.history import History
from flows.audit.measured import unmeasured
from flows.audit.report import Checks, Part
from flows.audit.signatures import Signatures, signature_faults
from flows.decide import follows
from flows.folding import advance, may_amend
from flows.gatefiles import changed_files, load_proposal, read_gate
from flows.overruling import GoesOn, fault_of
from flows.run_state import Gate, RunState
from flows.standing import expires_at, standing
from flows.steps import Done, HandOut, OpenGate, Propose, Rejected, Release, RunStage, next_steps
from specs.canonical import digest, sha256_bytes
from specs.decisions import closing_bytes, overruling_bytes, work_bytes
from specs.errors import GatewrightError, PolicyRefused
from specs.events import (
    ApprovalRecorded,
    AttemptPublished,
    AttemptReserved,
    DecisionRecorded,
    Event,
    GateAmended,
    GateExpired,
    GateOpened,
    JudgementOverruled,
    Payload,
    ProposalMade,
    ReleasePublished,
    ResumeConfirmed,
    RunClosed,
    RunCreated,
    RunFinished,
    RunRejected,
    SpecAmended,
    WorkHandedIn,
    WorkHandedOut,
)
from specs.policy import Policy, read_frozen
from specs.proposals import blocking_findings
from specs.rulings import check, effect, rulings

CHECKS = {
    "shown": "each decision names a gate that was open, with the digest of what it showed",
    "once": "each gate and round was decided once",
    "allowed": "each decision was allowed by the policy",
    "quorum": "each gate that opened had its quorum, and each edit was confirmed by others",
    "signed": "each signature is by a key of its person, over exactly what was decided",
    "blocked": "each gate said truly whether a blocking criterion had failed, and what its sheet leaves open",
    "order": "nothing ran, was released or ended without its decision",
    "measured": "what was trained is what the stress test measured",
}
"""The steps after the first, by the short name under which faults are collected."""


def authority(history: History) -> Part:
    """The steps of authority."""
    checks = Checks()
    policy, faults = _policy(history)
    checks.add("the policy is the one that the run began with", faults, _described(history, policy))
    found: dict[str, list[str]] = {name: [] for name in CHECKS}
    state = RunState()
    said = 0
    signed = Signatures(policy)
    for event, payload in zip(history.events, history.payloads, strict=True):
        if isinstance(payload, DecisionRecorded | ApprovalRecorded | GateAmended):
            said += 1
            _decision(found, history, state, event, payload, policy)
            found["signed"] += signed.faults(event, payload.decision)
        else:
            _transition(found, history, state, event, payload, policy)
        advance(state, event, payload)
    seen = dict.fromkeys(CHECKS, f"{said} decisions")
    seen["signed"] = signed.seen()
    seen["order"] = f"{len(history.events)} events"
    for name, check_name in CHECKS.items():
        old = _under_the_old_rule(history, policy) if name == "allowed" else []
        checks.add(check_name, found[name], seen[name], old)
    _persons(checks, history)
    return checks.part()


def _policy(history: History) -> tuple[Policy | None, list[str]]:
    frozen = [created.policy for _, created in history.of(RunCreated)]
    try:
        data = (history.run_dir / "policy.json").read_bytes()
        policy = read_frozen(data)
    except (OSError, ValueError):
        return None, ["policy.json cannot be read, so that no right to decide can be verified"]
    if not frozen:
        return None, ["no event says which policy the run began with, so that no right to decide can be verified"]
    if sha256_bytes(data) != frozen[0]:
        return None, ["policy.json was changed, so that no right to decide can be verified"]
    return policy, []


def _described(history: History, policy: Policy | None) -> str:
    if policy is None:
        return ""
    names = ", ".join(a.id for a in policy.approvers)
    pinned = any(created.policy_pinned for _, created in history.of(RunCreated))
    where = "; it was compared with a pin outside the project" if pinned else "; it was not pinned outside the project"
    return f"approvers: {names}" + ("; solo: every decision is self-approved" if policy.solo else "") + where


def _decision(
    found: dict[str, list[str]],
    history: History,
    state: RunState,
    event: Event,
    payload: DecisionRecorded | ApprovalRecorded | GateAmended,
    policy: Policy | None,
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
    if gate is not None and gate.closed:
        found["once"].append(f"{where}: it was decided before")
    if event.actor != decision.actor:
        found["allowed"].append(f"{where}: recorded by {event.actor}, decided by {decision.actor}")
    if policy is None:
        found["allowed"].append(f"{where}: not verifiable without the policy")
        return
    if decision.self_approved != policy.solo:
        found["allowed"].append(f"{where}: it does not say truly whether it is self-approved")
    if gate is not None and gate.name in state.order:
        _by_policy(found, state, gate, event, payload, policy, where)
        if isinstance(payload, GateAmended):
            found["quorum"] += [f"{where}: {fault}" for fault in _amendment(history, state, gate, payload)]


def _by_policy(
    found: dict[str, list[str]],
    state: RunState,
    gate: Gate,
    event: Event,
    payload: DecisionRecorded | ApprovalRecorded | GateAmended,
    policy: Policy,
    where: str,
) -> None:
    """Ask the rules again, as the gate stood then, whether a blocking criterion had failed taken from the verdicts."""
    decision = payload.decision
    failed = state.blocked(gate.name)
    truly = replace(gate, blocked=failed or bool(gate.findings))
    at = standing(policy, state, truly, event.at, decision.rework_stage)
    if any(ruling.rule == "once" for ruling in rulings(policy, decision, at)):
        found["once"].append(f"{where}: {decision.actor} had approved this before")
    try:
        check(policy, decision, at)
    except PolicyRefused as error:
        found["allowed"].append(f"{where}: {error.message}")
    result = effect(policy, decision, at)
    kinds = {"decides": DecisionRecorded.kind, "counts": ApprovalRecorded.kind, "amends": GateAmended.kind}
    if payload.kind != kinds[result.kind]:
        given = f"{len(result.approved_by)} of {result.quorum} had approved"
        found["quorum"].append(f"{where}: recorded as {payload.kind}, and by the policy {given}")
    elif decision.choice == "approve" and decision.schema_version >= 2 and payload.approved_by != [*result.approved_by]:
        found["quorum"].append(f"{where}: it does not say truly who approved")


def _amendment(history: History, state: RunState, gate: Gate, payload: GateAmended) -> list[str]:
    """What the gate showed after an edit: its document, and the proposal with exactly these edits."""
    decision, run_dir = payload.decision, history.run_dir
    before = gate.edited_proposal or state.proposals.get((gate.name, gate.round))
    if decision.edited_proposal is None or before is None:
        return ["it edited nothing"]
    faults = [
        f"{name} was changed" for name in changed_files(run_dir, gate.name, gate.round, payload.digest, amended=True)
    ]
    try:
        document = read_gate(run_dir, gate.name, gate.round, payload.digest)
        kept = load_proposal(run_dir, decision.edited_proposal)
        right = follows(load_proposal(run_dir, before), decision.edits, decision.actor, kept)
    except (GatewrightError, ValueError, KeyError) as error:
        return [*faults, error.message if isinstance(error, GatewrightError) else "its proposal cannot be read"]
    editors = list(dict.fromkeys([*gate.editors, decision.actor]))
    shown = (document.proposal, document.amends, document.edited_by)
    if shown != (decision.edited_proposal, gate.digest, editors):
        faults.append("the gate showed something else after it")
    if not right:
        faults.append("the edited proposal is not the proposal with these edits")
    return faults


def _transition(
    found: dict[str, list[str]],
    history: History,
    state: RunState,
    event: Event,
    payload: Payload,
    policy: Policy | None,
) -> None:
    where = f"event {event.sequence}: {payload.kind}"
    match payload:
        case SpecAmended():
            if not may_amend(state) or state.created is None or payload.before != state.created.spec:
                found["order"].append(f"{where}: the spec could not be taken in anew then")
        case ProposalMade():
            due = [*next_steps(state), *next_steps(state, retry=False)]
            if not any(isinstance(s, Propose) and (s.gate, s.round) == (payload.gate, payload.round) for s in due):
                found["order"].append(f"{where}: gate {payload.gate} round {payload.round} was not due")
        case GateOpened():
            due = next_steps(state)
            if not any(isinstance(s, OpenGate) and (s.gate, s.round) == (payload.gate, payload.round) for s in due):
                found["order"].append(f"{where}: gate {payload.gate} round {payload.round} was not due")
            found["blocked"] += [f"{where}: {fault}" for fault in _said_truly(history, state, payload)]
        case GateExpired():
            gate = state.gates.get((payload.gate, payload.round))
            ends = expires_at(policy, gate) if policy and gate else None
            if gate is None or gate.closed or gate.digest != payload.digest:
                found["once"].append(f"{where}: gate {payload.gate} round {payload.round} was not open like this")
            elif ends is None or ends != payload.expired_at or event.at < ends:
                found["allowed"].append(f"{where}: the policy did not let it expire then")
        case WorkHandedOut():
            due = next_steps(state)
            if not any(isinstance(s, HandOut) and (s.stage, s.round) == (payload.stage, payload.round) for s in due):
                found["order"].append(f"{where}: the work of {payload.stage} was not due")
        case WorkHandedIn():
            found["allowed"] += [f"{where}: {fault}" for fault in _handed_in(state, event, payload, policy)]
            found["signed"] += signature_faults(where, event, payload, policy, work_bytes)
        case JudgementOverruled() | ResumeConfirmed():
            _overruling(found, event, payload, policy)
        case RunClosed():
            _closing(found, state, event, payload, policy)
        case AttemptReserved():
            found["order"] += [f"{where}: {fault}" for fault in _attempt(history, state, payload)]
            found["measured"] += [f"{where}: {fault}" for fault in unmeasured(history, state, payload)]
        case AttemptPublished():
            attempt = state.current(payload.stage)
            again = attempt is not None and attempt.state == "published" and attempt.evidence == payload.evidence
            running = attempt is not None and attempt.number == payload.attempt and attempt.state == "reserved"
            if not (running or again or _ran_into_rework(state, payload)):
                found["order"].append(f"{where}: {payload.stage} {payload.attempt} was not running")
        case ReleasePublished():
            if not isinstance(next_steps(state)[0], Release):
                found["order"].append(f"{where}: the release gate was not approved")
        case RunFinished():
            if not isinstance(next_steps(state)[0], Done):
                found["order"].append(f"{where}: something was still to do")
        case RunRejected():
            if not isinstance(next_steps(state)[0], Rejected):
                found["order"].append(f"{where}: nobody rejected")


def _ran_into_rework(state: RunState, published: AttemptPublished) -> bool:
    """Whether an attempt ran while a rework elsewhere made it obsolete: it may end, and never counts."""
    known = {a.number: a for a in state.attempts.get(published.stage, [])}
    attempt = known.get(published.attempt)
    return attempt is not None and attempt.state == "superseded" and not attempt.evidence


def _handed_in(state: RunState, event: Event, came: WorkHandedIn, policy: Policy | None) -> list[str]:
    """Whether work came for a stage that waited for it, from who may decide at its gate and proved it as asked."""
    out = state.handed_out.get((came.stage, came.round))
    approval = state.approvals.get(came.stage)
    if out is None or approval is None or approval.round != came.round:
        return [f"{came.stage} round {came.round} waited for no work"]
    if policy is None:
        return ["not verifiable without the policy"]
    rules = policy.at(came.stage)
    if event.actor not in rules.reviewers:
        return [f"{event.actor!r} may not decide at gate {came.stage}, nor do its work"]
    if rules.proves_work(came.authentication, came.version):
        return []
    return [f"work on {came.stage} asks for {rules.work_authentication(came.version)}"]


def _under_the_old_rule(history: History, policy: Policy | None) -> list[str]:
    """Work that was judged by what held when it was handed in, where that is less than what holds now."""
    if policy is None:
        return []
    return [
        f"event {event.sequence}: work on {came.stage} by {event.actor} is a record of version 1, which could not be "
        f"signed: {policy.at(came.stage).work_authentication(came.version)} counted where the gate asks for "
        f"{policy.at(came.stage).authentication}"
        for event, came in history.of(WorkHandedIn)
        if policy.at(came.stage).work_authentication(came.version) != policy.at(came.stage).authentication
    ]


def _said_truly(history: History, state: RunState, opened: GateOpened) -> list[str]:
    """Whether a gate said what keeps it closed: verdicts of the finished stage, blocking findings of its sheet."""
    where = f"{opened.gate} round {opened.round}"
    failed = state.blocked(opened.gate)
    if opened.findings is None:
        faults = [] if opened.blocked == failed else [f"{where} says blocked={opened.blocked}"]
        silent = state.created is not None and state.created.identity != "" and opened.gate == state.order[0]
        return faults + ([f"{where} does not say what its task sheet leaves open"] if silent else [])
    if opened.blocked != (failed or bool(opened.findings)):
        return [f"{where} says blocked={opened.blocked}"]
    try:
        proposal = load_proposal(history.run_dir, state.proposals.get((opened.gate, opened.round), ""))
    except GatewrightError as error:
        return [f"{where}: {error.message}"]
    same = opened.findings == blocking_findings(proposal)
    return [] if same else [f"{where} names other findings than its task sheet has"]


def _closing(
    found: dict[str, list[str]], state: RunState, event: Event, closed: RunClosed, policy: Policy | None
) -> None:
    """Who closed a run was an approver and proved it as the gate asks for that the run was heading for."""
    where = f"event {event.sequence}: {closed.kind}"
    person = policy.approver(event.actor) if policy else None
    if policy and person is None:
        found["allowed"].append(f"{where}: {event.actor!r} is not an approver")
    if policy and closed.authentication is not None:
        rules = policy.at(state.goal.gate)
        if not rules.proves(closed.authentication):
            found["allowed"].append(f"{where}: it needed {rules.authentication}, and is {closed.authentication}")
    found["signed"] += signature_faults(where, event, closed, policy, closing_bytes)


def _overruling(found: dict[str, list[str]], event: Event, said: GoesOn, policy: Policy | None) -> None:
    """Who let a training go on was allowed to, and a signature is by a key of this person."""
    where = f"event {event.sequence}: {said.kind}"
    if policy and (fault := fault_of(policy, event.actor, said)):
        found["allowed"].append(f"{where}: {fault}")
    found["signed"] += signature_faults(where, event, said, policy, overruling_bytes)


def _attempt(history: History, state: RunState, reserved: AttemptReserved) -> list[str]:
    name = f"{reserved.stage} {reserved.attempt}"
    due = [s for s in next_steps(state) if isinstance(s, RunStage)]
    step = next((s for s in due if (s.stage, s.attempt) == (reserved.stage, reserved.attempt)), None)
    if step is None:
        return [f"{name} was not due: no approval stands for it"]
    try:
        parameters = digest(load_proposal(history.run_dir, step.proposal).parameters)
    except GatewrightError as error:
        return [f"{name}: its approved proposal cannot be read: {error.message}"]
    return [] if parameters == reserved.parameters else [f"{name} ran with other parameters than were approved"]


def _persons(checks: Checks, history: History) -> None:
    kinds = (DecisionRecorded, ApprovalRecorded, GateAmended)
    decisions = [payload.decision for payload in history.payloads if isinstance(payload, kinds)]
    ways = Counter(d.authentication for d in decisions)
    said = ", ".join(f"{count} {way}" for way, count in sorted(ways.items())) or "none"
    claims = ways["unauthenticated"]
    limit = f"; {claims} of {len(decisions)} are claims: who typed the name cannot be verified" if claims else ""
    accounts = ", ".join(sorted({d.account for d in decisions} - {""}))
    named = f" ({accounts})" if accounts else ""
    terminal = f"; terminal confirmations rest on the user accounts of the machine{named}" if ways["terminal"] else ""
    token = "; tokens were checked when they were given, and cannot be verified again" if ways["token"] else ""
    checks.add("who decided, as far as it can be known", [], said + limit + terminal + token)
