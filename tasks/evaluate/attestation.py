"""`attestation.json`: which files were released, from what, by what, with which parameters, and who approved. Pure.

An in-toto Statement v1 (github.com/in-toto/attestation); its predicate is like SLSA provenance: materials, parameters,
builder, and the approvals that SLSA has no place for. With a key the same bytes lie in `attestation.dsse.json`, an
envelope of DSSE v1 (github.com/secure-systems-lab/dsse). An envelope without a signature is none, so that without a
key there is only the statement, which says so: it proves that the bundle is consistent, not who made it.

The signature is an SSH signature (PROTOCOL.sshsig of OpenSSH) in the namespace `gatewright-release` over the
pre-authentication encoding of DSSE; `sig` holds the bytes between the armour's lines, `keyid` the key's fingerprint.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specs.results import Artifact
from tasks.evaluate.release_facts import ReleaseFacts

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:gatewright:release:2"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
NAMESPACE = "gatewright-release"
UNSIGNED = "not signed: it shows that the bundle is consistent with itself, not who made it"


@dataclass(frozen=True)
class Signer:
    """Who signs a release: the key's fingerprint, and a function from bytes to the SSHSIG blob in base64."""

    fingerprint: str
    sign: Callable[[bytes], str]


def statement(
    facts: ReleaseFacts,
    files: Sequence[Artifact],
    materials: Mapping[str, str],
    settings: Mapping[str, Any],
    signer: str = "",
) -> dict[str, Any]:
    """The statement over `files`; `materials` maps a name to a SHA-256, `settings` is settings.json of train.

    `signer` is the fingerprint of the key that will sign it, empty for none.
    """
    return {
        "_type": STATEMENT,
        "subject": [{"name": f.path, "digest": {"sha256": f.sha256}} for f in files],
        "predicateType": PREDICATE,
        "predicate": {
            "run": facts.run,
            "project": facts.project,
            "builder": {"id": "urn:gatewright", "version": facts.code or None},
            "base_model": {"name": facts.base_model, "licence": facts.licence or None},
            "method": facts.method,
            **({"parent": facts.parent.model_dump(mode="json")} if facts.parent else {}),
            "materials": [{"name": name, "digest": {"sha256": materials[name]}} for name in sorted(materials)],
            "parameters": {
                "requested": settings.get("requested", {}),
                "effective": settings.get("effective", {}),
                "fingerprint": settings.get("fingerprint"),
            },
            "versions": settings.get("versions", {}),
            "verdicts": {stage: [v.model_dump() for v in facts.verdicts[stage]] for stage in sorted(facts.verdicts)},
            "approvals": [d.model_dump(mode="json") for d in facts.decisions],
            "ledger_head": facts.ledger_head,
            "signature": f"attestation.dsse.json, by the key {signer}" if signer else UNSIGNED,
        },
    }


def pae(payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """The pre-authentication encoding of DSSE v1: what a signature is over."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def envelope(payload: bytes, signer: Signer) -> dict[str, Any]:
    """The DSSE envelope of a statement, signed."""
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"keyid": signer.fingerprint, "sig": signer.sign(pae(payload))}],
    }


def opened_envelope(document: Any) -> tuple[bytes, list[tuple[str, str]]]:
    """Payload, and (keyid, signature in base64) of every signature. Raises `ValueError` for what is no envelope."""
    try:
        if document["payloadType"] != PAYLOAD_TYPE:
            raise ValueError(f"its payload is {document['payloadType']!r}, not {PAYLOAD_TYPE}")
        signatures = [(str(s.get("keyid", "")), str(s["sig"])) for s in document["signatures"]]
        payload = base64.b64decode(document["payload"], validate=True)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no DSSE envelope: {type(error).__name__} {error}") from error
    if not signatures:
        raise ValueError("it holds no signature")
    return payload, signatures
