"""Who may decide at a gate, how many of them, how they prove who they are, and until when. What a person writes.

What follows from it for one decision says `specs/rulings.py`; what contradicts itself in it, `specs/policy_check.py`.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any

from pydantic import Field, field_validator, model_validator
from pydantic_core import from_json

from specs.base import Name, Strict
from specs.canonical import digest
from specs.decisions import RANKS, Authentication
from specs.ssh_keys import plain_key

AGENT_ACTORS = frozenset({"agent", "gatewright", "system"})
"""Names of the machine, which decides nothing."""

_UNITS_S = {"m": 60, "h": 3600, "d": 86400}


def folded(name: str) -> str:
    """What a name looks like, whatever its case and width: two people must differ by more."""
    shown = "".join(c for c in unicodedata.normalize("NFKC", name) if c.isprintable())
    return unicodedata.normalize("NFKC", shown.casefold()).strip()


def is_machine(name: str) -> bool:
    """Whether a name is one of the machine's, or looks like one."""
    return folded(name) in AGENT_ACTORS


class Approver(Strict):
    """A person who may decide."""

    id: str = Field(min_length=1, max_length=128, description="the name that decides: --as ID")
    roles: list[Name] = Field(default_factory=list, description="what this person is, for reviewers to name")
    may_override: bool = Field(False, description="may approve although a blocking criterion failed")
    keys: list[str] = Field(default_factory=list, description="public SSH keys, as in a .pub file")

    @field_validator("id")
    @classmethod
    def _one_form(cls, value: str) -> str:
        if value != value.strip() or not value.isprintable():
            raise ValueError("begins or ends with a space or holds a character that cannot be seen; take it out")
        return unicodedata.normalize("NFC", value)

    @field_validator("keys")
    @classmethod
    def _public_keys(cls, value: list[str]) -> list[str]:
        return [plain_key(line) for line in value]


class GateSettings(Strict):
    """Settings of one gate; what is left out is as for all gates."""

    quorum: int | None = Field(None, ge=1, description="how many must approve")
    reviewers: list[str] | None = Field(None, description="who may decide: ids, roles or groups")
    authentication: Authentication | None = Field(
        None, description="the least that counts: unauthenticated (solo only), terminal, token or ssh_signature"
    )
    comment_required: list[str] | None = Field(None, description="choices that need a comment")
    expires_after: str | None = Field(None, description="such as 30m, 72h or 14d; a gate that expires is denied")
    max_rework_rounds: int | None = Field(None, ge=0, description="reworks that may lead to this gate; null: no limit")

    @field_validator("expires_after")
    @classmethod
    def _duration(cls, value: str | None) -> str | None:
        return checked_duration(value)


class Policy(Strict):
    """The approval policy. `solo` is one person alone: no second pair of eyes, and every report says so."""

    solo: bool = Field(True, description="one person alone decides; every report says so")
    approvers: list[Approver] = Field(
        default_factory=lambda: [Approver(id="me", may_override=True)], description="the people who may decide"
    )
    groups: dict[Name, list[str]] = Field(default_factory=dict, description="names of groups to the ids in them")
    quorum: int = Field(1, ge=1, description="how many must approve before a gate opens")
    reviewers: list[str] | None = Field(None, description="who may decide: ids, roles or groups; null: all approvers")
    authentication: Authentication | None = Field(
        None, description="the least that counts; null: terminal, and under solo unauthenticated"
    )
    comment_required: list[str] = Field(
        default_factory=lambda: ["reject", "rework"], description="choices that need a comment"
    )
    expires_after: str | None = Field(None, description="such as 30m, 72h or 14d; a gate that expires is denied")
    max_rework_rounds: int | None = Field(None, ge=0, description="reworks that may lead to a gate; null: no limit")
    editors_may_approve_themselves: bool = Field(
        False, description="whoever edited a proposal counts as its reviewer; dangerous in a team"
    )
    gates: dict[str, GateSettings] = Field(default_factory=dict, description="settings of single gates")

    @field_validator("expires_after")
    @classmethod
    def _duration(cls, value: str | None) -> str | None:
        return checked_duration(value)

    @model_validator(mode="after")
    def _somebody_decides(self) -> Policy:
        if not self.approvers:
            raise ValueError("approvers must name somebody, or a gate can never open; write approvers: [{id: me}]")
        ids = [a.id for a in self.approvers]
        if len(set(ids)) != len(ids):
            raise ValueError("approvers names one person twice; take one of the two out")
        return self

    def approver(self, who: str) -> Approver | None:
        """The person of an id."""
        return next((a for a in self.approvers if a.id == who), None)

    def members(self, name: str) -> list[str]:
        """The ids that a name in `reviewers` stands for: a group's, a role's, or the person's own; empty for none."""
        if name in self.groups:
            return list(self.groups[name])
        return [a.id for a in self.approvers if name == a.id or name in a.roles]

    def at(self, gate: str) -> GateRules:
        """Everything that holds at one gate, the general settings filled in."""
        own = self.gates.get(gate, GateSettings())

        def setting(name: str) -> Any:
            value = getattr(own, name)
            return getattr(self, name) if value is None else value

        ids = [a.id for a in self.approvers]
        names = setting("reviewers")
        allowed = set(ids) if names is None else {who for name in names for who in self.members(name)}
        expires = setting("expires_after")
        return GateRules(
            gate=gate,
            quorum=setting("quorum"),
            reviewers=tuple(who for who in ids if who in allowed),
            authentication=setting("authentication") or ("unauthenticated" if self.solo else "terminal"),
            comment_required=tuple(setting("comment_required")),
            expires_after_s=None if expires is None else duration_s(expires),
            max_rework_rounds=setting("max_rework_rounds"),
        )

    @property
    def sha256(self) -> str:
        """Digest of what was set: a later version's new settings, at their defaults, do not change it."""
        return digest(self.model_dump(mode="json", exclude_defaults=True))


@dataclass(frozen=True)
class GateRules:
    """What holds at one gate. `reviewers` are the people who may decide there, in the order of the approvers."""

    gate: str
    quorum: int
    reviewers: tuple[str, ...]
    authentication: Authentication
    comment_required: tuple[str, ...]
    expires_after_s: int | None
    max_rework_rounds: int | None

    def proves(self, authentication: Authentication) -> bool:
        """Whether this way of saying who decides is enough here."""
        return RANKS.index(authentication) >= RANKS.index(self.authentication)

    def work_authentication(self, version: int) -> Authentication:
        """The least that counts for handing work in, by the version of its record: as for deciding, and in the first
        one, which could not be signed, a token where deciding needs a signature."""
        return "token" if version == 1 and self.authentication == "ssh_signature" else self.authentication

    def proves_work(self, authentication: Authentication, version: int) -> bool:
        """Whether this way of saying who did the work of a stage is enough."""
        return RANKS.index(authentication) >= RANKS.index(self.work_authentication(version))


def checked_duration(value: str | None) -> str | None:
    """Raises `ValueError` for a text that is no duration."""
    if value is not None and duration_s(value) < 1:
        raise ValueError("would expire at once; write a duration such as 72h")
    return value


def duration_s(text: str) -> int:
    """Seconds in `30m`, `72h` or `14d`. Raises `ValueError` for another text."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS_S or not (number.isascii() and number.isdigit()) or len(number) > 6:
        raise ValueError("is no duration; write a number with m, h or d, such as 30m, 72h or 14d")
    return int(number) * _UNITS_S[unit]


def read_frozen(data: bytes) -> Policy:
    """The policy that a run froze. Before there were quorums, whoever edited a proposal approved it too.

    Raises `ValueError` for bytes that are no policy.
    """
    document = from_json(data)
    if isinstance(document, dict) and "quorum" not in document:
        document["editors_may_approve_themselves"] = True
    return Policy.model_validate(document)
