"""What the policy says to one decision: every rule that speaks, and what the decision leads to. Pure functions.

`rulings` lets all rules speak (for `policy simulate`), `check` raises the first that forbids, `effect` says whether
the decision closes the gate, counts towards its quorum, or changes what the others must confirm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from specs.decisions import Authentication, Decision
from specs.errors import PolicyRefused
from specs.policy import GateRules, Policy, folded, is_machine

PROOFS: dict[Authentication, str] = {
    "unauthenticated": "name yourself with --as",
    "terminal": "decide at a terminal, where you confirm it yourself",
    "token": "set GATEWRIGHT_TOKEN to your token (`gatewright token new` makes one), or sign with --sign",
    "ssh_signature": "sign with your SSH key: --sign ~/.ssh/id_ed25519",
}
"""How to prove who decides, by what a gate asks for."""


@dataclass(frozen=True)
class Standing:
    """How a round of a gate stands when somebody decides on it.

    `findings` are what the task sheet leaves open and must not, in words, each with the sentence that closes it.
    `approved_by` approved exactly what is shown now; the edits of `editors` are part of it. `reworks` counts the
    reworks that led so far to the gate which a rework would lead to now.
    """

    gate: str
    blocked: bool = False
    approved_by: tuple[str, ...] = ()
    editors: tuple[str, ...] = ()
    expired_at: str = ""
    reworks: int = 0
    findings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ruling:
    """What one rule says: its name, whether it lets the decision pass, why, and the way out where it does not."""

    rule: str
    ok: bool
    text: str
    way_out: str = ""


@dataclass(frozen=True)
class Effect:
    """What an allowed decision leads to. `approved_by` and `waits_for` are as they stand after it.

    `decides` closes the round. `counts` is one of several approvals. `amends` puts an edited proposal in the place
    of the one that was shown: the others confirm its new digest.
    """

    kind: Literal["decides", "counts", "amends"]
    approved_by: tuple[str, ...]
    waits_for: tuple[str, ...]
    quorum: int


def check(policy: Policy, decision: Decision, standing: Standing) -> None:
    """Raise `PolicyRefused` with the first rule that forbids this decision, or return."""
    for ruling in rulings(policy, decision, standing):
        if not ruling.ok:
            raise PolicyRefused(ruling.text, ruling.way_out)


def rulings(policy: Policy, decision: Decision, standing: Standing) -> Iterator[Ruling]:
    """Every rule that speaks on this decision, in the order in which they are asked."""
    rules = policy.at(standing.gate)
    yield from _person(policy, rules, decision)
    yield _authentication(policy, rules, decision)
    if standing.expired_at:
        yield Ruling(
            "expiry", False, f"gate {standing.gate} expired at {standing.expired_at}; time denied it", "start a new run"
        )
    if decision.choice in rules.comment_required:
        said = bool(decision.comment.strip())
        yield Ruling(
            "comment",
            said,
            f"a {decision.choice} {'has the comment it needs' if said else 'needs a comment'}",
            "" if said else 'say why with -m "..."',
        )
    yield from _override(policy, rules, decision, standing)
    if decision.choice == "approve":
        yield from _self_approval(policy, rules, decision, standing)
    if decision.choice == "rework" and rules.max_rework_rounds is not None:
        yield _rounds(rules.max_rework_rounds, standing)


def effect(policy: Policy, decision: Decision, standing: Standing) -> Effect:
    """What a decision that the rules allow leads to."""
    rules = policy.at(standing.gate)
    if decision.choice != "approve":
        return Effect("decides", standing.approved_by, (), rules.quorum)
    if decision.edits:
        editors = {*standing.editors, decision.actor}
        approved: tuple[str, ...] = (decision.actor,) if _editor_counts(policy) else ()
        kind: Literal["decides", "counts", "amends"] = "amends"
    else:
        editors = set(standing.editors)
        approved, kind = tuple(dict.fromkeys((*standing.approved_by, decision.actor))), "counts"
    if len(approved) >= rules.quorum:
        return Effect("decides", approved, (), rules.quorum)
    return Effect(kind, approved, waits_for(policy, standing.gate, approved, tuple(editors)), rules.quorum)


def waits_for(policy: Policy, gate: str, approved_by: tuple[str, ...], editors: tuple[str, ...]) -> tuple[str, ...]:
    """Who may still approve what is shown: reviewers who have not, and whose edits it does not hold."""
    out = set(approved_by) | (set() if _editor_counts(policy) else set(editors))
    return tuple(who for who in policy.at(gate).reviewers if who not in out)


def _editor_counts(policy: Policy) -> bool:
    return policy.solo or policy.editors_may_approve_themselves


def _person(policy: Policy, rules: GateRules, decision: Decision) -> Iterator[Ruling]:
    who = decision.actor
    if is_machine(who):
        yield Ruling("person", False, f"{who!r} is not a person; the agent cannot decide", "a person decides")
    elif policy.approver(who) is None:
        ids = ", ".join(sorted(a.id for a in policy.approvers))
        yield Ruling(
            "person",
            False,
            f"{who!r} is not an approver of this project{_look_alike(policy, who)}",
            f"approvers are: {ids}; the policy is in project.yaml under policy.approvers",
        )
    else:
        yield Ruling("person", True, f"{who} is an approver")
        allowed = who in rules.reviewers
        names = ", ".join(rules.reviewers)
        text = f"{who} {'may' if allowed else 'may not'} decide at gate {rules.gate}"
        yield Ruling("reviewer", allowed, text, "" if allowed else f"who may: {names}")


def _look_alike(policy: Policy, who: str) -> str:
    """Says where a name only looks like an approver's: other letters, other case, characters nobody sees."""
    for approver in policy.approvers:
        if len(approver.id) == len(who) or folded(approver.id) == folded(who):
            other = [f"{c!r} is U+{ord(c):04X}" for c in who if c not in approver.id and not c.isascii()]
            if other and (len(other) < len(who) or approver.id.isascii()):
                return f"; it only looks like one: {', '.join(other[:3])}"
            if folded(approver.id) == folded(who):
                return f"; {approver.id!r} is, and is written differently"
    return ""


def _authentication(policy: Policy, rules: GateRules, decision: Decision) -> Ruling:
    given, least = decision.authentication, rules.authentication
    if rules.proves(given):
        return Ruling("authentication", True, f"{given} is enough; gate {rules.gate} asks for {least}")
    way_out = PROOFS[least]
    if given == "unauthenticated" and least == "terminal" and not policy.solo:
        text = f"--as {decision.actor} alone is a claim, and this policy is not solo"
        way_out += ", with a token (GATEWRIGHT_TOKEN, from `gatewright token new`) or a signature (--sign KEY); "
        way_out += "whoever works alone sets policy.solo: true before the run"
    else:
        text = f"gate {rules.gate} needs {least}, and this decision is {given}"
    return Ruling("authentication", False, text, way_out)


def _override(policy: Policy, rules: GateRules, decision: Decision, standing: Standing) -> Iterator[Ruling]:
    if not (decision.choice == "approve" and standing.blocked):
        if decision.override:
            text = "nothing to override here: no blocking criterion failed, and the sheet leaves nothing open"
            yield Ruling("override", False, text, "approve without --override")
        return
    what = "a failed blocking criterion" if not standing.findings else "what the task sheet leaves open"
    if not decision.override:
        yield _blocked(standing)
    approver = policy.approver(decision.actor)
    if not (policy.solo or (approver is not None and approver.may_override)):
        yield Ruling(
            "override",
            False,
            f"{decision.actor!r} may not override {what}",
            "ask an approver with may_override: true",
        )
    elif not policy.solo and len(overriders(policy, rules)) < rules.quorum:
        yield Ruling(
            "override",
            False,
            f"{rules.quorum} must override together, and only {len(overriders(policy, rules))} here have the right",
            "rework the stage, or reject",
        )
    elif decision.override:
        said = bool(decision.comment.strip())
        text = f"{decision.actor} overrides {what}" if said else "an override needs a reason"
        yield Ruling("override", said, text, "" if said else 'say why with -m "..."')


def _blocked(standing: Standing) -> Ruling:
    """Why a gate cannot be approved as it is, and both ways out."""
    override = 'override with --override -m "reason" if the policy gives you that right'
    if not standing.findings:
        text = "a blocking criterion failed, so this gate cannot be approved"
        return Ruling("override", False, text, f"rework the stage, or {override}")
    left = "".join(f"\n  - {finding}" for finding in standing.findings)
    text = f"the task sheet leaves open what keeps this gate closed:{left}"
    way_out = f"write the sentences into project.yaml and take it in with `gatewright resume --anew`, or {override}"
    return Ruling("override", False, text, way_out)


def overriders(policy: Policy, rules: GateRules) -> list[str]:
    """Who may override at a gate: under solo everybody who decides there, else who has the right."""
    found = [policy.approver(who) for who in rules.reviewers]
    return [a.id for a in found if a is not None and (policy.solo or a.may_override)]


def _self_approval(policy: Policy, rules: GateRules, decision: Decision, standing: Standing) -> Iterator[Ruling]:
    who, counts = decision.actor, _editor_counts(policy)
    if decision.edits:
        others = waits_for(policy, rules.gate, (), (*standing.editors, who))
        if counts or len(others) >= rules.quorum:
            text = "edits count as approved by who made them" if counts else f"{', '.join(others)} confirm the edit"
            yield Ruling("self_approval", True, text)
        else:
            yield Ruling(
                "self_approval",
                False,
                f"nobody could confirm an edit of {who}: {rules.quorum} must, and only {len(others)} others may decide",
                'ask the agent for other values: rework -m "lr=1e-4"; or let somebody else edit',
            )
    elif who in standing.editors and not counts:
        others = waits_for(policy, rules.gate, standing.approved_by, standing.editors)
        text = f"{who} edited this proposal and does not count as its reviewer"
        yield Ruling("self_approval", False, text, f"it waits for {', '.join(others) or 'nobody'}")
    elif who in standing.approved_by:
        yield Ruling("once", False, f"{who} approved this already", "each person counts once; the others decide now")
    else:
        yield Ruling("quorum", True, f"approval {len(standing.approved_by) + 1} of the {rules.quorum} needed")


def _rounds(limit: int, standing: Standing) -> Ruling:
    if standing.reworks < limit:
        return Ruling("rounds", True, f"rework {standing.reworks + 1} of at most {limit}")
    text = f"{standing.reworks} reworks led here already, and the policy allows {limit}"
    return Ruling("rounds", False, text, "approve, approve with --set, or reject")
