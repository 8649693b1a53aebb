"""Secrets stay out of everything that is written: URLs lose their user info, texts the values of secret variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

HIDDEN = "***"
_SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PWD|CREDENTIALS?|AUTH|AUTHORIZATION|BEARER|COOKIE|DSN"
    r"|KEY)(_|$)|(PASSWORD|PASSWD|SECRET|APIKEY)$",
    re.IGNORECASE,
)
_USER_INFO = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^/\s'\"<>]+@", re.IGNORECASE)
_IN_QUERY = re.compile(
    r"(?P<name>[?&;](?:password|passwd|pwd|token|secret|api_?key|access_?key|sslpassword)=)[^&\s'\"<>]+", re.IGNORECASE
)
_BEARER = re.compile(r"(?P<name>\b(?:Bearer|Basic)\s+)(?=\S*\d)[A-Za-z0-9._~+/=-]{8,}")
_PARTS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_SHORTEST = 6
"""A shorter value is no secret worth the name, and hiding it would blank out ordinary words."""


def secret_values(environment: Mapping[str, str] | None = None) -> list[str]:
    """Values of the environment variables whose names say that they are secret, longest first."""
    ours = os.environ if environment is None else environment
    values = {
        value
        for name, value in ours.items()
        if _SECRET_NAME.search(name) and not name.upper().endswith(("_FILE", "_PATH", "_SOCK")) and name != "PWD"
    }
    return sorted((v for v in values if len(v) >= _SHORTEST and not v.isdigit()), key=len, reverse=True)


def redacted(text: str, environment: Mapping[str, str] | None = None) -> str:
    """A text for a log, a message or an event: without user info of URLs and without values of secret variables."""
    for value in secret_values(environment):
        text = text.replace(value, HIDDEN)
    text = _USER_INFO.sub(lambda found: f"{found['scheme']}{HIDDEN}@", text)
    text = _IN_QUERY.sub(lambda found: found["name"] + HIDDEN, text)
    return _BEARER.sub(lambda found: found["name"] + HIDDEN, text)


def without_password(url: str) -> str:
    """A URL as it may be written: no password, no secret query parameter.

    The user of a database stays, because it is a name; elsewhere a user may be a token and goes too.
    """
    parts = _PARTS.fullmatch(url)
    if parts is None:
        return url
    user, at, host = parts["authority"].rpartition("@")
    name = user.partition(":")[0]
    keeps_user = name and parts["scheme"].split("+")[0].lower() in ("postgresql", "postgres")
    authority = f"{name}@{host}" if keeps_user else host if at else parts["authority"]
    path, mark, query = parts["rest"].partition("?")
    kept = "&".join(p for p in query.split("&") if not _IN_QUERY.match("?" + p))
    return f"{parts['scheme']}://{authority}{path}{mark if kept else ''}{kept}"
