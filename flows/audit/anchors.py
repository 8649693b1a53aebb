"""The head of a run at a moment, written down for keeping elsewhere; with a key it is signed.

Kept where nobody who can change the project can change it, it shows that nothing before it was changed or cut.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, Field, ValidationError

from flows.audit.report import Checks
from flows.ledger import Ledger
from flows.signing import key_in, sign, verify
from specs.base import Sha256, Strict
from specs.canonical import canonical_bytes
from specs.errors import GatewrightError, InputError
from specs.files import write_json
from specs.policy import Policy
from specs.ssh_keys import fingerprint

NAMESPACE = "gatewright-anchor"
"""What anchors are signed for: no signature on a decision or a release passes for one."""

VERSION = 2


class Anchor(Strict):
    """What is signed: everything but the signature. Version 1 was never signed."""

    format: Literal["gatewright-anchor"] = "gatewright-anchor"
    version: int = Field(1, ge=1, le=VERSION)
    run: str
    sequence: int = Field(ge=1)
    head: Sha256
    at: AwareDatetime
    signature: str | None = Field(None, description="SSH signature over the canonical bytes of the other fields")

    def signed_bytes(self) -> bytes:
        """The canonical bytes that a signature is over."""
        return canonical_bytes(self.model_dump(mode="json", exclude={"signature"}))


def anchor(ledger: Ledger, run: str, path: Path, key: Path | None = None) -> Anchor:
    """Write the head of a run to a file, signed when a private key is given.

    Raises `InputError` for an unknown run and for a key that cannot sign.
    """
    ledger.run(run)
    row = ledger.rows_beside(run)["runs"][0]
    head = {"run": run, "sequence": row["sequence"], "head": row["head"]}
    found = Anchor.model_validate({**head, "version": VERSION if key else 1, "at": ledger.now()})
    if key is None:
        write_json(path, found.model_dump(mode="json", exclude={"signature"}))
        return found
    signed = found.model_copy(update={"signature": sign(key, NAMESPACE, found.signed_bytes())})
    write_json(path, signed)
    return signed


def read_anchor(path: Path) -> Anchor:
    """The anchor in a file. Raises `InputError` when there is none."""
    try:
        data = path.read_bytes()
        raw = json.loads(data)
        version = raw.get("version") if isinstance(raw, dict) and raw.get("format") == "gatewright-anchor" else None
        if isinstance(version, int) and version > VERSION:
            raise InputError(
                f"{path} is an anchor of version {version}; this Gatewright reads versions 1 to {VERSION}",
                "verify it with the newer version that wrote it",
            )
        return Anchor.model_validate_json(data)
    except OSError as error:
        raise InputError(
            f"cannot read the anchor {path}: {error.strerror}", "write one: gatewright audit anchor FILE RUN"
        ) from error
    except (ValidationError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not an anchor", "`gatewright audit anchor FILE RUN` writes one") from error


def check_head(checks: Checks, run: str, count: int, found: str | None, anchor: Anchor | None) -> None:
    """Whether the history holds the anchored event. `found` is the hash of the event at the anchor's place."""
    check = "the head equals the anchor"
    if anchor is None:
        checks.skip(check, "no anchor was given")
        return
    faults = []
    if anchor.run != run:
        faults.append(f"the anchor is of run {anchor.run}, this is {run}")
    elif anchor.sequence > count:
        faults.append(f"the anchor knows {anchor.sequence} events, only {count} are there")
    elif found != anchor.head:
        faults.append(f"event {anchor.sequence} is not the one that was anchored")
    later = count - anchor.sequence
    seen = f"event {anchor.sequence}, anchored at {anchor.at:%Y-%m-%d %H:%M} UTC"
    checks.add(check, faults, seen + (f"; {later} events since" if later else ""))


def check_signature(checks: Checks, anchor: Anchor | None, signers: Sequence[str], policy: Policy | None) -> None:
    """Whether the anchor was signed, and by whom as far as the keys that are known say it.

    `signers` are public keys that the person verifying trusts; without them the keys of the policy are tried.
    """
    check = "the anchor is signed by a known key"
    if anchor is None:
        checks.skip(check, "no anchor was given")
    elif anchor.signature is None and signers:
        checks.add(check, ["the anchor is not signed, and a signer was asked for"], "")
    elif anchor.signature is None:
        checks.skip(check, "the anchor is not signed: it proves as much as the place where it was kept")
    else:
        people = {"the signer that was named": list(signers)} if signers else keys_of(policy)
        check_signed(checks, check, NAMESPACE, anchor.signed_bytes(), anchor.signature, people, required=bool(signers))


def check_signed(
    checks: Checks,
    check: str,
    namespace: str,
    data: bytes,
    signature: str,
    people: Mapping[str, Sequence[str]],
    *,
    required: bool,
) -> None:
    """A step: the signature holds, and by whose key. A key of nobody in `people` is a fault when one is `required`.

    A signature that holds under a key that nobody vouches for is said to be that; it is never counted as verified.
    """
    try:
        key = key_in(signature)
        by = fingerprint(key)
        whose = next((who for who, keys in people.items() if by in {fingerprint(known) for known in keys}), None)
        verify([key], whose or by, namespace, data, signature)
    except InputError as error:
        if required:
            raise  # whoever names a signer wants an answer, not a remark
        checks.skip(check, error.message)
    except GatewrightError as error:
        checks.add(check, [error.message], "")
    except ValueError as error:
        checks.add(check, [f"the signature holds no public key that can be read: {error}"], "")
    else:
        if whose is not None:
            checks.add(check, [], f"signed by {whose} with the key {by}")
        elif required:
            checks.add(check, [f"signed with the key {by}, which is not the one that was named"], "")
        else:
            checks.skip(check, f"signed with the key {by}, which nothing here vouches for; name a key with --signer")


def keys_of(policy: Policy | None) -> dict[str, list[str]]:
    """The public keys of each person in a policy."""
    return {a.id: list(a.keys) for a in policy.approvers if a.keys} if policy else {}
