"""How an open gate stands under its policy: who approved what is shown, who may still, until when. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from flows.folding import rework_target
from flows.ledger.chain import timestamp
from flows.run_state import Gate, RunState, Said
from specs.base import Language
from specs.bilingual import Texts
from specs.policy import Policy
from specs.rulings import Standing, waits_for


@dataclass(frozen=True)
class Waiting:
    """What an open gate waits for."""

    quorum: int
    approved_by: tuple[str, ...]
    waits_for: tuple[str, ...]
    editors: tuple[str, ...]
    expires_at: datetime | None

    def document(self) -> dict[str, Any]:
        """As plain data, for `status`, `gates` and `review`."""
        return {
            "quorum": self.quorum,
            "approved_by": list(self.approved_by),
            "waits_for": list(self.waits_for),
            "edited_by": list(self.editors),
            "expires_at": timestamp(self.expires_at) if self.expires_at else None,
        }

    def sentence(self) -> str:
        """The same in words."""
        return sentence(self.document())


_WORDS: dict[str, tuple[str, str]] = {
    "waits": ("waits for {people}", "等待 {people}"),
    "nobody": ("nobody who could still approve; rework or reject", "已无人可再批准；请返工或否决"),
    "given": ("{count} of {quorum} approvals{who}", "已有 {count}/{quorum} 人批准{who}"),
    "who": (" ({people})", "（{people}）"),
    "edited": ("edited by {people}", "由 {people} 修改"),
    "expires": ("expires at {at}", "于 {at} 过期，过期即否决"),
}
_word = Texts(_WORDS)


def sentence(document: Mapping[str, Any], language: Language = "en") -> str:
    """What a gate waits for, in words: `1 of 2 approvals (li); waits for wang`."""
    t = partial(_word, language)
    comma = "、" if language == "zh" else ", "
    parts = []
    given = document["approved_by"]
    if document["quorum"] > 1 or given:
        who = t("who", people=comma.join(given)) if given else ""
        parts.append(t("given", count=len(given), quorum=document["quorum"], who=who))
    parts.append(t("waits", people=comma.join(document["waits_for"]) or t("nobody")))
    if document["edited_by"]:
        parts.append(t("edited", people=comma.join(document["edited_by"])))
    if document["expires_at"]:
        parts.append(t("expires", at=document["expires_at"]))
    return ("；" if language == "zh" else "; ").join(parts)


def waiting(policy: Policy, gate: Gate) -> Waiting:
    """What a gate waits for; once closed it waits for nobody."""
    approved = approved_by(policy, gate)
    return Waiting(
        quorum=policy.at(gate.name).quorum,
        approved_by=approved,
        waits_for=() if gate.closed else waits_for(policy, gate.name, approved, gate.editors),
        editors=gate.editors,
        expires_at=expires_at(policy, gate),
    )


def approved_by(policy: Policy, gate: Gate) -> tuple[str, ...]:
    """Who approved exactly what the gate shows now. Its last editor is among them only where the policy says so."""
    counted: list[Said] = []
    if gate.amendments and (policy.solo or policy.editors_may_approve_themselves):
        counted.append(gate.amendments[-1])
    counted += [said for said in gate.approvals if said.digest == gate.digest]
    return tuple(dict.fromkeys(said.decision.actor for said in counted))


def expires_at(policy: Policy, gate: Gate) -> datetime | None:
    """When the gate is denied if nobody decides, counted from its opening; None for never."""
    seconds = policy.at(gate.name).expires_after_s
    return None if seconds is None else gate.opened_at + timedelta(seconds=seconds)


def expired(policy: Policy, gate: Gate, now: datetime) -> datetime | None:
    """When a gate that is still open ran out; None where it has not."""
    ends = expires_at(policy, gate)
    return ends if ends is not None and not gate.closed and now >= ends else None


def reworks(state: RunState, target: str) -> int:
    """How many reworks led to a gate so far."""
    decided = [(gate, gate.decision) for gate in state.gates.values() if gate.decision]
    return sum(d.choice == "rework" and rework_target(state, g, d.rework_stage) == target for g, d in decided)


def standing(policy: Policy, state: RunState, gate: Gate, now: datetime, rework_stage: str | None = None) -> Standing:
    """What the rules need to know about a gate when somebody decides on it."""
    ends = expired(policy, gate, now)
    return Standing(
        gate=gate.name,
        blocked=gate.blocked,
        findings=tuple(f"{f.text} (write: {f.sentence})" for f in gate.findings),
        approved_by=approved_by(policy, gate),
        editors=gate.editors,
        expired_at=timestamp(ends) if ends else "",
        reworks=reworks(state, rework_target(state, gate, rework_stage)),
    )
