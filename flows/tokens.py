"""Personal tokens: a person proves who decides by a secret that was shown once. Only its hash is kept.

The tokens of a project lie in `<project>/.gatewright/tokens.json`. A token is 32 random bytes, so that a plain hash
of it cannot be guessed back; whoever may write that file can add a token, which the docs say.
"""

from __future__ import annotations

import getpass
import hmac
import os
import re
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import AwareDatetime, Field, ValidationError

from specs.base import Sha256, Strict
from specs.canonical import sha256_bytes
from specs.errors import InputError, PolicyRefused
from specs.files import write_json
from specs.policy import Policy

VARIABLE = "GATEWRIGHT_TOKEN"
"""Where a token is read from: never the command line, which other users of a machine can see."""

_TOKEN = re.compile(r"gwt_([0-9a-f]{8})_[A-Za-z0-9_-]{43}")


class Token(Strict):
    """What is kept of a token."""

    id: str = Field(pattern=r"^[0-9a-f]{8}$")
    approver: str
    sha256: Sha256 = Field(description="of the whole token")
    created_at: AwareDatetime
    expires_at: AwareDatetime
    revoked_at: AwareDatetime | None = None

    def valid(self, now: datetime) -> bool:
        """Whether it still proves anything."""
        return self.revoked_at is None and now < self.expires_at


class _Tokens(Strict):
    format: str = "gatewright-tokens"
    version: int = 1
    tokens: list[Token] = Field(default_factory=list)


def new_token(
    project_dir: Path,
    policy: Policy,
    approver: str,
    valid_s: int,
    now: datetime | None = None,
    record: Callable[[Token], object] = lambda token: None,
) -> str:
    """Make a token for an approver and return it: it is shown this once. Raises `InputError` for a stranger.

    `record` is called before the token holds, so that none holds without its record.
    """
    if policy.approver(approver) is None:
        ids = ", ".join(a.id for a in policy.approvers)
        raise InputError(f"{approver!r} is not an approver of this project", f"approvers are: {ids}")
    name = secrets.token_hex(4)
    token = f"gwt_{name}_{secrets.token_urlsafe(32)}"
    now = now or datetime.now(UTC)
    made = Token(
        id=name,
        approver=approver,
        sha256=sha256_bytes(token.encode()),
        created_at=now,
        expires_at=now + timedelta(seconds=valid_s),
    )
    record(made)
    _write(project_dir, [*tokens_of(project_dir), made])
    return token


def account() -> str:
    """The account of the system that this process runs under; what the environment claims does not count."""
    try:
        import pwd
    except ImportError:  # a system without it knows accounts otherwise
        return getpass.getuser()
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def tokens_of(project_dir: Path) -> list[Token]:
    """Every token of a project, revoked and expired ones too. Raises `InputError` for a file that is none."""
    path = _file(project_dir)
    if not path.is_file():
        return []
    try:
        return _Tokens.model_validate_json(path.read_bytes()).tokens
    except ValidationError as error:
        raise InputError(f"{path} was changed: it holds no tokens", "restore it, or delete it to revoke all") from error


def revoke_token(project_dir: Path, token_id: str, now: datetime | None = None) -> Token:
    """From now on the token proves nothing; decisions made with it stay. Raises `InputError` for an unknown id."""
    known = tokens_of(project_dir)
    found = next((token for token in known if token.id == token_id), None)
    if found is None:
        ids = ", ".join(token.id for token in known) or "none"
        raise InputError(f"there is no token {token_id!r}", f"tokens are: {ids}")
    revoked = found.model_copy(update={"revoked_at": found.revoked_at or now or datetime.now(UTC)})
    _write(project_dir, [revoked if token.id == token_id else token for token in known])
    return revoked


def token_in(text: str, project_dir: Path, now: datetime | None = None) -> Token:
    """The token that a text proves. Raises `PolicyRefused` without saying which part of it is wrong."""
    match = _TOKEN.fullmatch(text.strip())
    digest = sha256_bytes(text.strip().encode(errors="replace"))
    now = now or datetime.now(UTC)
    for token in tokens_of(project_dir):
        if match and token.id == match.group(1) and hmac.compare_digest(token.sha256, digest) and token.valid(now):
            return token
    raise PolicyRefused(
        f"the token in {VARIABLE} is unknown here, revoked or expired",
        "`gatewright token list` shows which are valid, gatewright token new --as WHO makes one; "
        f"unset {VARIABLE} when it belongs to another project",
    )


def _write(project_dir: Path, tokens: list[Token]) -> None:
    path = _file(project_dir)
    write_json(path, _Tokens(tokens=tokens))
    os.chmod(path, 0o600)


def _file(project_dir: Path) -> Path:
    return project_dir / ".gatewright" / "tokens.json"
