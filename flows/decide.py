"""Deciding: everything is checked first, then one record is written. A recorded decision executes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from flows.folding import Gate, RunState, fold
from flows.gatefiles import changed_files, load_proposal, store_proposal
from flows.ledger import Ledger
from flows.ledger.chain import timestamp
from specs.canonical import sha256_bytes
from specs.decisions import Authentication, Choice, Decision
from specs.errors import DecisionRefused, GuardRefused, InputError
from specs.events import Event
from specs.parameters import leaves, resolve
from specs.policy import Policy, check
from specs.proposals import Proposal

Guard = Callable[[Proposal], Proposal | None]
"""Raises `GuardRefused`; may return the proposal with its memory account computed again."""


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
) -> Event:
    """Validate a decision on the open gate of a run and record it; returns the recorded event.

    `edits` maps a parameter (its dotted path, or the end of it) to a value, texts read as YAML. `expected_digest`
    is what the person was shown. Raises `DecisionRefused`, `PolicyRefused`, `GuardRefused` or `InputError`.
    """
    edits = dict(edits or {})
    state = fold(ledger.events(run))
    gate = _open_gate(state, run)
    _same_as_shown(gate, run_dir, expected_digest, choice)
    _unambiguous(state, gate, choice, edits, override, rework_stage)
    policy = frozen_policy(state, run_dir)
    try:
        decision = Decision(
            run=run,
            gate=gate.name,
            round=gate.round,
            digest=gate.digest,
            choice=choice,
            actor=actor,
            authentication=authentication,
            comment=comment,
            override=override,
            rework_stage=rework_stage,
            self_approved=policy.solo,
        )
    except ValidationError as error:
        raise DecisionRefused(f"this is no decision: {_first(error)}", "see `gatewright approve --help`") from error
    check(policy, decision, gate.blocked)
    if edits:
        proposal, values = edited(load_proposal(run_dir, state.proposals[gate.name, gate.round]), edits, actor, comment)
        proposal = guard(proposal) or proposal
        digest = store_proposal(run_dir, proposal)
        decision = decision.model_copy(update={"edits": values, "edited_proposal": digest})
    return ledger.record_decision(decision, actor)


def _open_gate(state: RunState, run: str) -> Gate:
    gate = state.gate
    if gate is not None and gate.decision is not None:
        by, at = gate.decision.actor, timestamp(gate.decided_at) if gate.decided_at else "?"
        if state.terminal or state.rejection is not None:
            raise DecisionRefused(
                f"run {run} has ended ({state.state}); the last decision was {gate.decision.choice} by {by} at {at}",
                "start a new run",
            )
        if state.goal.gate == gate.name and state.goal.round == gate.round:
            raise DecisionRefused(
                f"gate {gate.name} round {gate.round} was decided already: {gate.decision.choice} by {by} at {at}",
                f"go on with `gatewright resume {run}`",
            )
    if gate is None or gate.decision is not None:
        raise DecisionRefused(
            f"no gate of run {run} is open: it is {state.state} at {state.stage}",
            f"a gate opens after the stage and its proposal: `gatewright resume {run}` goes on, `status` shows where",
        )
    if state.terminal:
        raise DecisionRefused(f"run {run} has ended ({state.state}); its gates are closed", "start a new run")
    return gate


def _same_as_shown(gate: Gate, run_dir: Path, expected: str | None, choice: str) -> None:
    where = f"gate {gate.name} round {gate.round}"
    if expected is not None and expected != gate.digest:
        raise DecisionRefused(
            f"{where} shows {gate.digest[:12]}, you decided on {expected[:12]}",
            "look at it again with `gatewright review`, then decide",
        )
    changed = changed_files(run_dir, gate.name, gate.round, gate.digest)
    if changed and choice != "reject":  # a run whose files are lost can still be ended
        raise DecisionRefused(
            f"what {where} showed was changed since it opened: {', '.join(changed)}",
            "restore the file, or reject; nobody can decide on what was not shown",
        )


def _unambiguous(
    state: RunState, gate: Gate, choice: str, edits: Mapping[str, Any], override: bool, rework_stage: str | None
) -> None:
    if choice not in get_args(Choice):
        raise DecisionRefused(f"{choice!r} is no decision", f"decide one of: {', '.join(get_args(Choice))}")
    if choice != "approve" and edits:
        raise DecisionRefused(
            f"a {choice} with edits is ambiguous: {', '.join(sorted(edits))}",
            "approve with --set to run with your values, or rework with -m to ask for others",
        )
    if choice != "approve" and override:
        raise DecisionRefused(f"a {choice} overrides nothing", "leave --override out, or approve with it")
    if rework_stage is None:
        return
    if choice != "rework":
        raise DecisionRefused(
            f"--stage {rework_stage} says rework, the command says {choice}", "use `gatewright rework --stage`"
        )
    order = state.order
    possible = order[: order.index(gate.name) + 1]
    if rework_stage not in possible:
        raise DecisionRefused(
            f"a rework at gate {gate.name} cannot lead to {rework_stage!r}", f"possible: {', '.join(possible)}"
        )


def frozen_policy(state: RunState, run_dir: Path) -> Policy:
    """The policy that the run began with. Raises `DecisionRefused` when its file is not the one that was frozen."""
    path = run_dir / "policy.json"
    if state.created is None or not path.is_file() or sha256_bytes(path.read_bytes()) != state.created.policy:
        raise DecisionRefused(
            f"{path.name} is not the policy that the run began with", "restore it from a backup; a run keeps its policy"
        )
    return Policy.model_validate_json(path.read_bytes())


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
