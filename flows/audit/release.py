"""Verify a release folder alone, and sign one: its checks in numbered steps, and whose signature stands under it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows.audit.anchors import check_signed
from flows.audit.report import Checks, Part
from flows.signing import sign, signed_by
from specs.errors import InputError, VerificationFailed
from specs.files import write_json
from tasks.evaluate.attestation import NAMESPACE, Signer, envelope, opened_envelope, pae
from tasks.evaluate.release_check import ATTESTATION, ENVELOPE, check_release, verify_release

_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_LINE = 70


def signer_of(key: Path) -> Signer:
    """The signer with a private SSH key. Raises `InputError` when the key cannot sign."""
    trial = sign(key, NAMESPACE, b"which key is it?")
    return Signer(signed_by(trial), lambda data: _unarmoured(sign(key, NAMESPACE, data)))


def beside(folder: Path) -> Path:
    """Where the envelope of a release lies that was signed after it was published: published folders never change."""
    return folder.with_name(folder.name + ".dsse.json")


def sign_release(folder: Path, key: Path) -> Path:
    """Sign the attestation of a published release; the envelope is written beside the folder.

    Raises `InputError` for a folder that holds no release, `VerificationFailed` for one that is not intact.
    """
    folder = folder.resolve()
    attestation = folder / ATTESTATION
    if not attestation.is_file():
        raise InputError(f"{folder} holds no {ATTESTATION}", "name the folder of a release: runs/RUN/release")
    faults = verify_release(folder)
    if faults:
        raise VerificationFailed(f"{folder} is not intact: {faults[0]}", "nothing was signed; restore it from a backup")
    target = beside(folder)
    if target.exists():
        raise InputError(f"{target} exists", "it holds a signature already; move it away to sign anew")
    write_json(target, envelope(attestation.read_bytes(), signer_of(key)))
    return target


def verify_release_folder(folder: Path, signers: Sequence[str] = (), envelope_file: Path | None = None) -> Part:
    """The steps of a release. `signers` are public keys one of which must have signed it.

    The envelope lies in the folder, beside it, or where `envelope_file` says. Raises `InputError` for no folder.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder", "name the folder of a release: runs/RUN/release")
    folder = folder.resolve()
    checks = Checks()
    for check in check_release(folder):
        checks.add(check.name, check.faults, check.seen)
    found = [path for path in (folder / ENVELOPE, beside(folder), envelope_file) if path is not None and path.exists()]
    if envelope_file is not None and envelope_file not in found:
        raise InputError(f"{envelope_file} does not exist", "name the envelope: a .dsse.json file")
    _signatures(checks, folder, found, signers)
    return checks.part()


def _signatures(checks: Checks, folder: Path, envelopes: Sequence[Path], signers: Sequence[str]) -> None:
    name = "the attestation is signed by a known key"
    if not envelopes and signers:
        checks.add(name, ["there is no signature, and a signer was asked for"], "")
    elif not envelopes:
        checks.skip(name, "there is no signature: this shows that the files belong together, not who made them")
    people = {"the signer that was named": list(signers)} if signers else {}
    for path in envelopes:
        said = name if len(envelopes) == 1 else f"{name} ({path.name})"
        try:
            payload, signatures = opened_envelope(_document(path))
        except ValueError as error:
            checks.add(said, [f"{path.name}: {error}"], "")
            continue
        attestation = folder / ATTESTATION
        if not attestation.is_file() or attestation.read_bytes() != payload:
            checks.add(said, [f"{path.name} signs another statement than {ATTESTATION}"], "")
            continue
        for _, signature in signatures:  # the keyid is a hint; the key inside the signature is what counts
            check_signed(checks, said, NAMESPACE, pae(payload), armoured(signature), people, required=bool(signers))


def _document(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, RecursionError, ValueError) as error:
        raise ValueError("it cannot be read") from error


def armoured(blob: str) -> str:
    """An SSHSIG blob in base64 as ssh-keygen reads it."""
    lines = [blob[at : at + _LINE] for at in range(0, len(blob), _LINE)]
    return "\n".join([_BEGIN, *lines, _END, ""])


def _unarmoured(signature: str) -> str:
    return "".join(signature.strip().removeprefix(_BEGIN).removesuffix(_END).split())
