"""Events of a project beside its runs: what was removed or restored, and tokens."""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from specs.base import Sha256, Strict
from specs.events.base import Payload


class FilesDeleted(Payload):
    """Housekeeping deleted files that nothing recorded refers to; in the upkeep chain of the project."""

    kind = "files.deleted"
    rule: str
    run: str | None = None
    paths: list[str] = Field(description="relative to the project; a folder stands for all of it")
    files: int
    bytes: int


class RemovedFile(Strict):
    """One file that is gone for good, and the digest by which the record knows it."""

    path: str
    sha256: Sha256
    bytes: int


class DataRemoved(Payload):
    """Files of a run were removed on request, such as a person's data; in the upkeep chain of the project."""

    kind = "data.removed"
    run: str
    reason: str
    files: list[RemovedFile]


class ProjectRestored(Payload):
    """A project was restored from a backup, here or on another machine; in the upkeep chain of the project."""

    kind = "project.restored"
    backup: Sha256
    made_at: AwareDatetime
    files: int


class TokenMade(Payload):
    """A personal token was made; in the upkeep chain of the project. The actor is the account of the system."""

    kind = "token.made"
    token: str = Field(description="its id, never the token itself")
    approver: str = Field(description="whom it proves")
    expires_at: AwareDatetime


class TokenRevoked(Payload):
    """A personal token proves nothing from here on; in the upkeep chain of the project."""

    kind = "token.revoked"
    token: str
    approver: str
