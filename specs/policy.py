"""Who may decide. A pure function from policy, decision and facts to allowed or refused."""

from __future__ import annotations

from pydantic import Field, model_validator

from specs.base import Strict
from specs.decisions import Decision
from specs.errors import PolicyRefused

AGENT_ACTORS = frozenset({"agent", "gatewright", "system"})


class Approver(Strict):
    """A person who may decide."""

    id: str = Field(min_length=1, description="the name that decides: --as ID")
    may_override: bool = Field(False, description="may approve although a blocking criterion failed")


class Policy(Strict):
    """The approval policy. `solo` is one person alone: no second pair of eyes, and every report says so."""

    solo: bool = Field(True, description="one person alone decides; every report says so")
    approvers: list[Approver] = Field(
        default_factory=lambda: [Approver(id="me", may_override=True)], description="the people who may decide"
    )
    comment_required: list[str] = Field(
        default_factory=lambda: ["reject", "rework"], description="choices that need a comment"
    )

    @model_validator(mode="after")
    def _somebody_decides(self) -> Policy:
        if not self.approvers:
            raise ValueError("approvers must name somebody, or a gate can never open; write approvers: [{id: me}]")
        ids = [a.id for a in self.approvers]
        if len(set(ids)) != len(ids):
            raise ValueError("approvers names one person twice; take one of the two out")
        return self


def check(policy: Policy, decision: Decision, blocked: bool) -> None:
    """Raise `PolicyRefused` with the rule that forbids this decision, or return.

    `blocked` says that a blocking criterion of the evidence failed.
    """
    who = {a.id: a for a in policy.approvers}
    if decision.actor in AGENT_ACTORS:
        raise PolicyRefused(f"{decision.actor!r} is not a person; the agent cannot decide", "a person decides")
    if decision.actor not in who:
        raise PolicyRefused(
            f"{decision.actor!r} is not an approver of this project",
            f"approvers are: {', '.join(sorted(who))}; the policy is in project.yaml under policy.approvers",
        )
    if decision.authentication == "unauthenticated" and not policy.solo:
        raise PolicyRefused(
            f"--as {decision.actor} alone is a claim, and this policy is not solo",
            "decide at a terminal, where you confirm it yourself, or set policy.solo: true before the run",
        )
    if decision.choice in policy.comment_required and not decision.comment.strip():
        raise PolicyRefused(f"a {decision.choice} needs a comment", 'say why with -m "..."')
    if decision.choice == "approve" and blocked:
        if not decision.override:
            raise PolicyRefused(
                "a blocking criterion failed, so this gate cannot be approved",
                'rework the stage, or override with --override -m "reason" if the policy gives you that right',
            )
        if not (policy.solo or who[decision.actor].may_override):
            raise PolicyRefused(
                f"{decision.actor!r} may not override a failed blocking criterion",
                "ask an approver with may_override: true",
            )
        if not decision.comment.strip():
            raise PolicyRefused("an override needs a reason", 'say why with -m "..."')
    if decision.override and not (decision.choice == "approve" and blocked):
        raise PolicyRefused("nothing to override here: no blocking criterion failed", "approve without --override")
