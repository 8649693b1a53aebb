"""What in a policy contradicts itself or has no effect. Pure: each fault with its place, the rule, and a way out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from specs.decisions import Choice
from specs.policy import GateRules, Policy, folded, is_machine
from specs.rulings import overriders
from specs.stage_graph import BUILT_IN
from specs.words import listed, nearest

GATES: tuple[str, ...] = BUILT_IN.order
"""The gates of a project without stages of its own."""


@dataclass(frozen=True)
class PolicyFault:
    """Something wrong in a policy. `path` leads to it from the policy's own block."""

    path: tuple[str | int, ...]
    rule: str
    way_out: str


def policy_faults(policy: Policy, gates: Sequence[str] = GATES) -> list[PolicyFault]:
    """Everything that contradicts itself or has no effect at these gates. An empty list is a pass."""
    found = [*_people(policy), *_names(policy), *_choices(policy), *_gates(policy, gates), *_solo(policy)]
    return found or [
        *_reachable(policy, gates),
        *_without_effect(policy, gates),
    ]  # numbers of people mean nothing while names are wrong


def _people(policy: Policy) -> Iterator[PolicyFault]:
    seen: dict[str, str] = {}
    owner: dict[str, str] = {}
    for position, approver in enumerate(policy.approvers):
        path = ("approvers", position)
        if is_machine(approver.id):
            yield PolicyFault((*path, "id"), "is a name of the machine; only a person decides", "Name a person")
        looks = folded(approver.id)
        if looks in seen:
            rule = f"looks like {seen[looks]!r}; one could be taken for the other"
            yield PolicyFault((*path, "id"), rule, "Choose names that differ by more than case or width")
        seen.setdefault(looks, approver.id)
        for number, key in enumerate(approver.keys):
            if key in owner:
                whose = "listed twice" if owner[key] == approver.id else f"also listed for {owner[key]}"
                way_out = "A key proves one person; list it once"
                yield PolicyFault((*path, "keys", number), f"is {whose}", way_out)
            owner.setdefault(key, approver.id)


def _names(policy: Policy) -> Iterator[PolicyFault]:
    """Groups, roles and the names in `reviewers`: each means something, and one thing only."""
    ids = {a.id for a in policy.approvers}
    roles = {role for a in policy.approvers for role in a.roles}
    for group, members in policy.groups.items():
        path: tuple[str | int, ...] = ("groups", group)
        if group in ids or group in roles:
            what = "an approver" if group in ids else "a role"
            yield PolicyFault(path, f"is also the name of {what}", "Give the group a name of its own")
        if not members:
            yield PolicyFault(path, "is a group that nobody is in", "Name its members, or take it out")
        for position, who in enumerate(members):
            if who not in ids:
                yield PolicyFault((*path, position), "is not an approver", _did_you_mean(who, ids))
            elif who in members[:position]:
                yield PolicyFault((*path, position), "is in this group twice", "Take one of the two out")
    for role in sorted(roles & ids):
        yield PolicyFault(("approvers",), f"{role!r} is a role and an approver", "Give the role another name")
    known = ids | roles | set(policy.groups)
    for path, names in _reviewer_lists(policy):
        if not names:
            yield PolicyFault(path, "names nobody, so the gate could never open", "Name ids, roles or groups")
        for position, name in enumerate(names):
            if name not in known:
                rule = "is neither an approver nor a role nor a group"
                yield PolicyFault((*path, position), rule, _did_you_mean(name, known))


def _reviewer_lists(policy: Policy) -> Iterator[tuple[tuple[str | int, ...], list[str]]]:
    if policy.reviewers is not None:
        yield ("reviewers",), policy.reviewers
    for gate, settings in policy.gates.items():
        if settings.reviewers is not None:
            yield ("gates", gate, "reviewers"), settings.reviewers


def _choices(policy: Policy) -> Iterator[PolicyFault]:
    choices = get_args(Choice)
    lists: list[tuple[tuple[str | int, ...], list[str]]] = [(("comment_required",), policy.comment_required)]
    lists += [(("gates", g, "comment_required"), s.comment_required or []) for g, s in policy.gates.items()]
    for path, names in lists:
        for position, choice in enumerate(names):
            if choice not in choices:
                near = nearest(choice, choices)
                way_out = f"Did you mean {near[0]}?" if near else f"Choices are {listed(choices, 'and')}"
                yield PolicyFault((*path, position), "is not a choice at a gate", way_out)


def _gates(policy: Policy, gates: Sequence[str]) -> Iterator[PolicyFault]:
    for gate, settings in policy.gates.items():
        path = ("gates", gate)
        if gate not in gates:
            yield PolicyFault(path, "is not a gate", _did_you_mean(gate, set(gates)))
        if not settings.model_fields_set:
            yield PolicyFault(path, "sets nothing", "Set something, or take the gate out")
    if set(policy.gates) >= set(gates):
        for name in sorted(policy.model_fields_set & set(type(next(iter(policy.gates.values()))).model_fields)):
            if all(name in settings.model_fields_set for settings in policy.gates.values()):
                yield PolicyFault((name,), "has no effect: every gate sets its own", "Take it out")


def _solo(policy: Policy) -> Iterator[PolicyFault]:
    """`solo` means that nobody else is needed; what asks for others or forbids claims contradicts it."""
    if not policy.solo:
        for path, given in _settings(policy, "authentication"):
            if given == "unauthenticated":
                rule = "lets anybody decide in anybody's name; only solo may"
                yield PolicyFault(path, rule, "Write terminal, token or ssh_signature")
        return
    for path, quorum in _settings(policy, "quorum"):
        if isinstance(quorum, int) and quorum > 1:
            rule = "asks for several people, and solo (true where it is not written) is one person alone"
            yield PolicyFault(path, rule, "Write solo: false")
    if policy.editors_may_approve_themselves:
        rule = "has no effect under solo, where everybody approves alone"
        yield PolicyFault(("editors_may_approve_themselves",), rule, "Take it out, or write solo: false")


def _settings(policy: Policy, name: str) -> Iterator[tuple[tuple[str | int, ...], object]]:
    yield (name,), getattr(policy, name)
    for gate, settings in policy.gates.items():
        if name in settings.model_fields_set:
            yield ("gates", gate, name), getattr(settings, name)


def _reachable(policy: Policy, gates: Sequence[str]) -> Iterator[PolicyFault]:
    """A quorum larger than the people who could give it closes a gate for ever."""
    told = set()
    for gate in gates:
        rules = policy.at(gate)
        able = [who for who in rules.reviewers if _can_prove(policy, rules, who)]
        if len(able) >= rules.quorum:
            continue
        own = gate in policy.gates
        path: tuple[str | int, ...] = ("gates", gate) if own else ()
        if own and "quorum" in policy.gates[gate].model_fields_set:
            path = (*path, "quorum")
        elif not own:
            path = ("quorum",) if "quorum" in policy.model_fields_set else ("approvers",)
        if path in told:
            continue
        told.add(path)
        people = f"{', '.join(able) or 'nobody'} could approve"
        keyless = [who for who in rules.reviewers if who not in able]
        more = f"; {', '.join(keyless)} cannot sign, having no keys" if keyless else ""
        rule = f"gate {gate} needs {rules.quorum}, and only {people}{more}"
        yield PolicyFault(path, rule, "Lower the quorum, name more reviewers, or add their keys")


def _can_prove(policy: Policy, rules: GateRules, who: str) -> bool:
    approver = policy.approver(who)
    return rules.authentication != "ssh_signature" or bool(approver and approver.keys)


def _without_effect(policy: Policy, gates: Sequence[str]) -> Iterator[PolicyFault]:
    used = {name for _, names in _reviewer_lists(policy) for name in names}
    for group in policy.groups:
        if group not in used:
            rule = "is a group that no reviewers name, so it has no effect"
            yield PolicyFault(("groups", group), rule, f"Write reviewers: [{group}], or take it out")
    everywhere = [policy.at(gate) for gate in gates]
    for position, approver in enumerate(policy.approvers):
        path = ("approvers", position)
        for number, role in enumerate(approver.roles):
            if role not in used:
                rule = "is a role that no reviewers name, so it has no effect"
                yield PolicyFault((*path, "roles", number), rule, f"Write reviewers: [{role}], or take it out")
        mine = [rules for rules in everywhere if approver.id in rules.reviewers]
        if not mine:
            yield PolicyFault((*path, "id"), "may decide at no gate", "Name this person in reviewers, or take it out")
        elif approver.may_override and not any(len(overriders(policy, rules)) >= rules.quorum for rules in mine):
            rule = "has no effect: at every gate of this person more people must override together than may"
            yield PolicyFault((*path, "may_override"), rule, "Give others the right too, or take it out")


def _did_you_mean(word: str, known: set[str]) -> str:
    near = nearest(word, sorted(known))
    return f"Did you mean {near[0]}?" if near else f"There are {listed(sorted(known), 'and')}"
