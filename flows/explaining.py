"""A policy in words, gate by gate; and what it would say to a decision that nobody made. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, get_args

from specs.base import Language
from specs.bilingual import Texts
from specs.decisions import RANKS, Choice, Decision
from specs.errors import InputError
from specs.policy import Policy
from specs.policy_check import GATES
from specs.rulings import Effect, Standing, effect, overriders, rulings, waits_for

_WORDS: dict[str, tuple[str, str]] = {
    "solo": (
        "solo: one person alone decides, and every report says self-approved",
        "单人策略：由一人独自决定，所有报告均注明自批",
    ),
    "pinned": ("this policy is pinned outside the project", "此策略已在项目之外固定"),
    "not_pinned": (
        "not pinned: whoever edits project.yaml can change it for the next run",
        "未固定：能编辑 project.yaml 的人可为下一次运行更改它",
    ),
    "who": ("{quorum} of {people} must approve", "须由 {people} 中的 {quorum} 人批准"),
    "proof": ("each proves who decides by at least: {proof}", "决定者身份证明的最低要求：{proof}"),
    "comment": ("a comment is needed to: {choices}", "以下决定须附说明：{choices}"),
    "override": ("a failed blocking criterion may be overridden by: {people}", "可强制放行者：{people}"),
    "no_override": ("nobody can override a failed blocking criterion", "无人可强制放行未通过的阻断准则"),
    "edits": (
        "approving with edits: others confirm; possible for {people}",
        "带修改的批准须由他人确认；可由 {people} 提出",
    ),
    "edits_alone": ("whoever edits approves the edit too", "修改者本人即可批准其修改"),
    "no_edits": ("nobody can approve with edits: too few others could confirm", "无人可带修改批准：可确认的其他人不足"),
    "expires": ("denied when nobody has decided after {hours} h", "{hours} 小时内无人决定则视为否决"),
    "never": ("waits without a limit", "等待不设时限"),
    "rounds": ("at most {rounds} reworks lead here", "最多返工 {rounds} 次"),
}
_word = Texts(_WORDS)


def explanation(policy: Policy, order: Sequence[str] = GATES) -> dict[str, Any]:
    """Per gate: who, how many, with which proof, what needs a comment, who overrides, what expires."""
    gates = []
    for gate in order:
        rules = policy.at(gate)
        able = overriders(policy, rules)
        alone = policy.solo or policy.editors_may_approve_themselves
        editors = [who for who in rules.reviewers if alone or len(waits_for(policy, gate, (), (who,))) >= rules.quorum]
        gates.append(
            {
                "gate": gate,
                "quorum": rules.quorum,
                "reviewers": list(rules.reviewers),
                "authentication": rules.authentication,
                "comment_required": list(rules.comment_required),
                "may_override": able if len(able) >= rules.quorum else [],
                "may_edit": editors,
                "editors_approve_themselves": alone,
                "expires_after_s": rules.expires_after_s,
                "max_rework_rounds": rules.max_rework_rounds,
            }
        )
    return {"policy": policy.sha256, "solo": policy.solo, "gates": gates}


def lines(document: dict[str, Any], language: Language) -> list[str]:
    """The explanation for a person; gates under equal rules share one block."""
    t = partial(_word, language)
    found = [t("solo")] if document["solo"] else []
    found.append(t("pinned" if document["pinned"] else "not_pinned"))
    blocks: dict[tuple[str, ...], list[str]] = {}
    for gate in document["gates"]:
        blocks.setdefault(tuple(_gate_lines(gate, t)), []).append(gate["gate"])
    for body, gates in blocks.items():
        found += ["", f"{', '.join(gates)}:", *(f"  {line}" for line in body)]
    return found


def _gate_lines(gate: dict[str, Any], t: Any) -> list[str]:
    people = ", ".join(gate["reviewers"])
    if gate["editors_approve_themselves"]:
        edits = t("edits_alone")
    else:
        edits = t("edits", people=", ".join(gate["may_edit"])) if gate["may_edit"] else t("no_edits")
    hours = gate["expires_after_s"] and f"{gate['expires_after_s'] / 3600:g}"
    found = [
        t("who", quorum=gate["quorum"], people=people),
        t("proof", proof=gate["authentication"]),
        t("comment", choices=", ".join(gate["comment_required"])) if gate["comment_required"] else "",
        t("override", people=", ".join(gate["may_override"])) if gate["may_override"] else t("no_override"),
        edits,
        t("expires", hours=hours) if hours else t("never"),
        "" if gate["max_rework_rounds"] is None else t("rounds", rounds=gate["max_rework_rounds"]),
    ]
    return [line for line in found if line]


def simulation(policy: Policy, standing: Standing, order: Sequence[str] = GATES, **given: Any) -> dict[str, Any]:
    """Every rule that speaks on a decision that nobody made, and what it would lead to.

    Raises `InputError` for a gate, choice or way of authentication that does not exist.
    """
    for name, value, known in (
        ("gate", standing.gate, order),
        ("decision", given["choice"], get_args(Choice)),
        ("authentication", given["authentication"], RANKS),
    ):
        if value not in known:
            raise InputError(f"--{name} {value} does not exist", f"there are {', '.join(known)}")
    decision = Decision(run="simulated", gate=standing.gate, round=1, digest="0" * 64, **given)
    spoken = list(rulings(policy, decision, standing))
    accepted = all(ruling.ok for ruling in spoken)
    result = effect(policy, decision, standing)
    refusals = dict.fromkeys(ruling.rule for ruling in spoken if not ruling.ok)
    return {
        "gate": standing.gate,
        "as": decision.actor,
        "decision": decision.choice,
        "accepted": accepted,
        "rules": [vars(ruling) for ruling in spoken],
        "effect": result.kind if accepted else None,
        "approved_by": list(result.approved_by) if accepted else list(standing.approved_by),
        "waits_for": list(result.waits_for) if accepted else [],
        "quorum": result.quorum,
        "sentence": _outcome(decision, result) if accepted else f"refused: {', '.join(refusals)}",
    }


def _outcome(decision: Decision, result: Effect) -> str:
    if result.kind == "decides":
        closes = {"approve": "the gate opens", "rework": "another round begins", "reject": "the run ends"}
        return f"accepted: {closes[decision.choice]}"
    people = ", ".join(result.waits_for)
    if result.kind == "amends":
        return f"accepted: the gate shows the edit, and {result.quorum} of {people} must confirm it"
    return f"accepted: {len(result.approved_by)} of {result.quorum} approvals; it waits for {people}"
