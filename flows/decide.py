"""Deciding: everything is checked first, then one record is written. A recorded decision executes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from flows import signing
from flows.expiring import expire_if_due, expired_error, expiry
from flows.folding import fold, rework_target
from flows.frozen import frozen_policy
from flows.gatefiles import changed_files, load_proposal, read_gate, store_proposal, write_amended
from flows.ledger import Ledger
from flows.ledger.chain import timestamp
from flows.ledger.store import OWN_ACTOR
from flows.removal import removed_files
from flows.run_state import Gate, RunState
from flows.standing import approved_by, standing, waiting
from flows.unseen import stage_of
from specs.canonical import digest
from specs.decisions import Authentication, Choice, Decision, signed_bytes
from specs.errors import DecisionRefused, GuardRefused, InputError
from specs.events import ApprovalRecorded, DecisionRecorded, Event, GateAmended, GateExpired, Payload
from specs.parameters import PARAMETERS, leaves, resolve
from specs.policy import Policy
from specs.proposals import Proposal
from specs.rulings import Standing, check, effect

Guard = Callable[[Proposal], Proposal | None]
"""Raises `GuardRefused`; may return the proposal with its memory account computed again."""

Sign = Callable[[bytes], str]
"""The person's SSH signature over bytes, in the namespace of decisions."""

DIGEST_DIGITS = 12
"""As many digits of a digest as messages show are enough to name it."""


def decide(
    ledger: Ledger,
    run: str,
    *,
    choice: str,
    actor: str,
    authentication: Authentication,
    run_dir: Path,
    guard: Guard,
    comment: str = "",
    edits: Mapping[str, Any] | None = None,
    override: bool = False,
    rework_stage: str | None = None,
    expected_digest: str | None = None,
    requests: Mapping[str, Any] | None = None,
    credential: str = "",
    account: str = "",
    sign: Sign | None = None,
    rehearsal: str = "",
    name: str | None = None,
) -> Event:
    """Validate a decision on the open gate of a run and record it; returns the recorded event.

    `account` is the system account that typed it, where neither key nor token proves who decides.

    `edits` maps a parameter (its dotted path, or the end of it) to a value, texts read as YAML; `requests`, of a
    rework, to the value asked for or to `less` or `more`. `expected_digest` is what the person was shown; `name` is
    the gate, which must be said where several are open.
    The event is a decision that closes the gate, one approval of several, or an edit that others must confirm.
    Raises `DecisionRefused`, `PolicyRefused`, `SignatureRefused`, `GuardRefused` or `InputError`.
    """
    edits = dict(edits or {})
    state = fold(ledger.events(run))
    gate = _open_gate(state, run, ledger, name)
    removed = removed_files(ledger, state.created.project, run) if state.created else {}
    _same_as_shown(gate, run_dir, expected_digest, choice, removed)
    _unambiguous(state, gate, choice, edits, override, rework_stage, requests or {})
    policy = frozen_policy(state, run_dir)
    if ran_out := expire_if_due(ledger, run, run_dir):
        raise expired_error(gate.name, gate.round, ran_out)
    decision = _decision(
        run=run,
        gate=gate.name,
        round=gate.round,
        digest=gate.digest,
        choice=choice,
        actor=actor,
        authentication="ssh_signature" if sign else authentication,
        comment=comment,
        edits=edits,
        override=override,
        rework_stage=rework_stage,
        self_approved=policy.solo,
        credential=credential,
        account=account,
        rehearsal=rehearsal,
    )
    _once(policy, gate, decision)
    check(policy, decision, standing(policy, state, gate, ledger.now(), rework_stage))
    if edits:
        decision = _with_edits(decision, load_proposal(run_dir, shown_proposal(state, gate)), run_dir, guard)
    if requests:
        decision = _with_requests(decision, requests, state, gate, run_dir)
    if sign:
        decision = _signed(policy, decision, sign)
    return _record(ledger, run_dir, policy, gate, decision)


def shown_proposal(state: RunState, gate: Gate, target: str | None = None) -> str:
    """Digest of the proposal that a gate shows, edits included; of another gate, its newest one."""
    if target is None or target == gate.name:
        return gate.edited_proposal or state.proposals[gate.name, gate.round]
    return state.proposals[target, max(r for name, r in state.proposals if name == target)]


def _decision(**fields: Any) -> Decision:
    try:
        return Decision(**fields)
    except ValidationError as error:
        raise DecisionRefused(f"this is no decision: {_first(error)}", "see `gatewright approve --help`") from error


def _with_edits(decision: Decision, shown: Proposal, run_dir: Path, guard: Guard) -> Decision:
    """The decision with its edits validated and guarded, and the digest of the edited proposal, which is stored."""
    proposal, values = edited(shown, decision.edits, decision.actor, decision.comment)
    stored = store_proposal(run_dir, guard(proposal) or proposal)
    return decision.model_copy(update={"edits": values, "edited_proposal": stored})


def _with_requests(
    decision: Decision, requests: Mapping[str, Any], state: RunState, gate: Gate, run_dir: Path
) -> Decision:
    """The decision of a rework with what is asked of the stage that it goes back to, by full names."""
    target = rework_target(state, gate, decision.rework_stage)
    proposal = load_proposal(run_dir, state.approved_proposal(target) or shown_proposal(state, gate, target))
    return decision.model_copy(update={"requests": asked(proposal, requests, decision.actor)})


def _signed(policy: Policy, decision: Decision, sign: Sign) -> Decision:
    """The decision with its signature, verified against the keys that the frozen policy lists for the person."""
    data = signed_bytes(decision)
    signed = decision.model_copy(update={"signature": sign(data)})
    person = policy.approver(decision.actor)
    signing.verify(person.keys if person else [], decision.actor, signing.NAMESPACE, data, signed.signature)
    return signed


def _record(ledger: Ledger, run_dir: Path, policy: Policy, shown: Gate, decision: Decision) -> Event:
    """Write the record, after asking once more, with nobody writing in between, whether it still applies."""
    alone = effect(policy, decision, Standing(gate=shown.name, editors=shown.editors)).kind == "decides"
    amended = "" if alone or not decision.edits else _write_amended(run_dir, shown, decision)

    def judge(state: RunState, now: datetime) -> tuple[Payload, str]:
        gate = _open_gate(state, decision.run, None, decision.gate)
        where = f"gate {decision.gate} round {decision.round}"
        if (gate.name, gate.round) != (decision.gate, decision.round):
            raise DecisionRefused(f"{where} is closed by now", "look where the run stands: `gatewright status`")
        if gate.digest != decision.digest:
            raise DecisionRefused(
                f"{where} shows {gate.digest[:12]}, you decided on {decision.digest[:12]}: "
                f"{', '.join(gate.editors)} edited the proposal meanwhile",
                "look at it again with `gatewright review`, then decide",
            )
        if ran_out := expiry(policy, gate, now):
            return ran_out, OWN_ACTOR
        _once(policy, gate, decision)
        now_standing = standing(policy, state, gate, now, decision.rework_stage)
        check(policy, decision, now_standing)
        result = effect(policy, decision, now_standing)
        people, quorum = list(result.approved_by), result.quorum
        if result.kind == "amends":
            payload = GateAmended(decision=decision, digest=amended, approved_by=people, quorum=quorum)
            return payload, decision.actor
        if result.kind == "counts":
            return ApprovalRecorded(decision=decision, approved_by=people, quorum=quorum), decision.actor
        approvers = people if decision.choice == "approve" else []
        return DecisionRecorded(decision=decision, approved_by=approvers), decision.actor

    event = ledger.settle(decision.run, judge)
    payload = event.read()
    if isinstance(payload, GateExpired):
        raise expired_error(payload.gate, payload.round, payload.expired_at)
    return event


def _write_amended(run_dir: Path, gate: Gate, decision: Decision) -> str:
    """What the gate shows after these edits, written under its digest, which is returned."""
    before = read_gate(run_dir, gate.name, gate.round, gate.digest if gate.amendments else "")
    editors = list(dict.fromkeys([*before.edited_by, decision.actor]))
    changes = {"proposal": decision.edited_proposal, "amends": gate.digest, "edited_by": editors}
    return write_amended(run_dir, before.model_copy(update=changes))


def _open_gate(state: RunState, run: str, ledger: Ledger | None, name: str | None = None) -> Gate:
    """The gate that waits. Raises `DecisionRefused` in words of their own for early, late, double and expired."""
    gate = state.gate
    if name is not None:
        if name not in state.order:
            raise DecisionRefused(f"run {run} has no gate {name!r}", f"its gates are {', '.join(state.order)}")
        rounds = [found for found in state.gates.values() if found.name == name]
        gate = max(rounds, key=lambda found: found.round, default=None)
    elif len(state.open_gates) > 1 and state.rejection is None:
        names = ", ".join(found.name for found in state.open_gates)
        raise DecisionRefused(f"several gates of run {run} wait: {names}", "say which one with --gate")
    if gate is not None and gate.expired_at is not None:
        raise expired_error(gate.name, gate.round, gate.expired_at)
    if gate is not None and gate.decision is not None:
        by, at = gate.decision.actor, timestamp(gate.decided_at) if gate.decided_at else "?"
        if state.terminal or state.rejection is not None:
            raise DecisionRefused(
                f"run {run} has ended ({state.state}); the last decision was {gate.decision.choice} by {by} at {at}",
                "start a new run",
            )
        if (goal := state.goals.get(gate.name)) and goal.round == gate.round:
            raise DecisionRefused(
                f"gate {gate.name} round {gate.round} was decided already: {gate.decision.choice} by {by} at {at}",
                f"go on with `gatewright resume {run}`",
            )
    if gate is None or gate.closed:
        raise DecisionRefused(
            f"no gate of run {run} is open: it is {state.state} at {state.stage}", hint_without_gate(run, ledger)
        )
    if state.terminal or state.rejection is not None:
        raise DecisionRefused(f"run {run} has ended ({state.state}); its gates are closed", "start a new run")
    return gate


def hint_without_gate(run: str, ledger: Ledger | None) -> str:
    """What to do while no gate is open: wait for the process that works on the run, or go on with it."""
    holder = ledger.lease_holder(run) if ledger is not None else None
    if holder is not None and holder[1]:
        return f"{holder[0]} works on it; a gate opens when the stage is done: `gatewright status {run}` shows where"
    return f"a gate opens after the stage and its proposal: `gatewright resume {run}` goes on, `status` shows where"


def _same_as_shown(gate: Gate, run_dir: Path, expected: str | None, choice: str, removed: Collection[str] = ()) -> None:
    where = f"gate {gate.name} round {gate.round}"
    if expected is not None and not _names(expected, gate.digest):
        edited_by = f": {', '.join(gate.editors)} edited it" if gate.editors else ""
        raise DecisionRefused(
            f"{where} shows {gate.digest[:DIGEST_DIGITS]}, you decided on {expected[:DIGEST_DIGITS]}{edited_by}",
            "look at it again with `gatewright review`, then decide",
        )
    if expected is None and gate.amendments and choice == "approve":
        last = gate.amendments[-1].decision
        changes = ", ".join(f"{path} = {value}" for path, value in sorted(last.edits.items()))
        raise DecisionRefused(
            f"{last.actor} edited what {where} showed ({changes}); an approval must name what it shows now",
            f"look at it with `gatewright review`, then approve with --digest {gate.digest[:DIGEST_DIGITS]}",
        )
    changed = changed_files(run_dir, gate.name, gate.round, gate.digest, amended=bool(gate.amendments))
    gone = [name for name in changed if name in removed and not (run_dir / name).exists()]
    if choice == "rework" and changed == gone:  # going back approves nothing, and is how the data is made anew
        return
    if gone and choice != "reject":
        raise DecisionRefused(
            f"what {where} showed was removed on request since it opened: {', '.join(gone)}",
            f"make it anew with `gatewright rework {run_dir.name} --stage {stage_of(gone)} --as WHO -m WHY`, "
            "or reject; nobody approves what was not shown",
        )
    if changed and choice != "reject":  # a run whose files are lost can still be ended
        raise DecisionRefused(
            f"what {where} showed was changed since it opened: {', '.join(changed)}",
            "restore the file, or reject; nobody can decide on what was not shown",
        )


def _names(given: str, digest: str) -> bool:
    return len(given) >= DIGEST_DIGITS and digest.startswith(given.lower())


def _once(policy: Policy, gate: Gate, decision: Decision) -> None:
    """Raises `DecisionRefused` for a second approval by the same person of the same content."""
    if decision.choice != "approve" or decision.edits:
        return
    for said in (*gate.approvals, *gate.amendments):
        if said.decision.actor == decision.actor and said.digest == gate.digest:
            if decision.actor not in approved_by(policy, gate):
                continue
            raise DecisionRefused(
                f"{decision.actor} approved gate {gate.name} round {gate.round} already, at {timestamp(said.at)}",
                waiting(policy, gate).sentence(),
            )


def _unambiguous(
    state: RunState,
    gate: Gate,
    choice: str,
    edits: Mapping[str, Any],
    override: bool,
    rework_stage: str | None,
    requests: Mapping[str, Any],
) -> None:
    if choice not in get_args(Choice):
        raise DecisionRefused(f"{choice!r} is no decision", f"decide one of: {', '.join(get_args(Choice))}")
    if choice != "approve" and edits:
        raise DecisionRefused(
            f"a {choice} with edits is ambiguous: {', '.join(sorted(edits))}",
            "approve with --set to run with your values, or rework with --want to ask for others",
        )
    if choice != "rework" and requests:
        raise DecisionRefused(
            f"--want asks for another proposal, the command says {choice}", "use `gatewright rework --want`"
        )
    if choice != "approve" and override:
        raise DecisionRefused(f"a {choice} overrides nothing", "leave --override out, or approve with it")
    if rework_stage is None:
        return
    if choice != "rework":
        raise DecisionRefused(
            f"--stage {rework_stage} says rework, the command says {choice}", "use `gatewright rework --stage`"
        )
    possible = (*state.graph.ancestors(gate.name), gate.name)
    if rework_stage not in possible:
        raise DecisionRefused(
            f"a rework at gate {gate.name} cannot lead to {rework_stage!r}", f"possible: {', '.join(possible)}"
        )


def edited(proposal: Proposal, edits: Mapping[str, Any], actor: str, comment: str) -> tuple[Proposal, dict[str, Any]]:
    """The proposal with a person's edits in it, validated; and the edits as dotted path to value.

    The memory account is dropped, because it was another configuration's. Raises `GuardRefused`.
    """
    from agents.guard import Change, apply_changes

    values: dict[str, Any] = {}
    for key, given in sorted(edits.items()):
        path = resolve(proposal.parameters, key) or key
        if path in values:
            raise GuardRefused(f"{path} is set twice", "give each parameter once")
        values[path] = parsed(given)
    why, source = comment or f"set by {actor}", f"person:{actor}"
    changed = apply_changes(proposal, [Change(path, value, why, source) for path, value in values.items()])
    flat = leaves(changed.parameters)
    return changed.model_copy(update={"edited_by": actor}), {path: flat.get(path, v) for path, v in values.items()}


def follows(before: Proposal, edits: Mapping[str, Any], actor: str, after: Proposal) -> bool:
    """Whether `after` is `before` with exactly these edits; parameters that a later version added are at defaults.

    Those of an added stage are the project's own: no version of ours adds any.
    """
    again, _ = edited(before, edits, actor, "")
    model = PARAMETERS.get(after.stage)
    kept = model.model_validate(after.parameters) if model else after.parameters
    return digest(again.parameters) == digest(kept) and after.edited_by == actor


def asked(proposal: Proposal, requests: Mapping[str, Any], actor: str) -> dict[str, Any]:
    """What a rework asks for, as dotted path to value, `less` or `more`. Raises `GuardRefused` where it cannot be."""
    if proposal.stage == "train":
        raise GuardRefused(
            "train repeats exactly what the stress test measured, so that nothing else can be asked for",
            "ask there: gatewright rework --stage stress_test --want ...",
        )
    flat, found, values = leaves(proposal.parameters), {}, {}
    for key, given in requests.items():
        path = resolve(proposal.parameters, key) or key
        value = parsed(given)
        numeric = isinstance(flat.get(path), int | float) and not isinstance(flat.get(path), bool)
        if value in ("less", "more") and numeric:
            found[path] = value
        else:
            values[key] = value
    if values:
        found.update(edited(proposal, values, actor, "")[1])
    return dict(sorted(found.items()))


def parsed(value: Any) -> Any:
    """A text as YAML reads it (`1e-4`, `true`, `[a, b]`, `null`); anything else as it is."""
    if not isinstance(value, str):
        return value
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML(typ="safe", pure=True).load(value)
    except (YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{value[:80]!r} cannot be read as a value", 'quote it: --set key="value"') from error
    return value if isinstance(found, date) else found  # no parameter is a date; `2026-01-01` is a name


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False)
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'value'}: {e['msg']} (is {e['input']!r})" for e in found[:3])
