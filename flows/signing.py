"""SSH signatures: made and verified by `ssh-keygen -Y`, as git signs. Verification needs no network and no agent.

What a signature holds (PROTOCOL.sshsig of OpenSSH): the public key, the namespace, a hash of the data. What it does
not hold is a name: whose key it is, the caller says by the keys it passes to `verify`.
"""

from __future__ import annotations

import base64
import binascii
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from specs.errors import InputError, SignatureRefused
from specs.ssh_keys import blob_fingerprint, fields, fingerprint, plain_key

NAMESPACE = "gatewright"
"""What decisions are signed for: a signature made for git or mail is no decision."""

_TIMEOUT_S = 30
_TIMEOUT_AT_TERMINAL_S = 300
_DEFAULT_KEYS = ("id_ed25519", "id_ed25519_sk", "id_ecdsa", "id_ecdsa_sk", "id_rsa")
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"


def sign(key: Path | str, namespace: str, data: bytes) -> str:
    """The armoured signature of `data` with a private key, or with the key of a `.pub` file that the agent holds.

    Raises `InputError` when the key cannot be used; at a terminal ssh-keygen asks for a passphrase itself.
    """
    path = Path(key).expanduser()
    if not path.is_file():
        raise InputError(f"there is no key {path}", "name a private key, or make one: ssh-keygen -t ed25519")
    public = path if path.suffix == ".pub" else path.with_name(path.name + ".pub")
    tries = [public] if public.is_file() and os.environ.get("SSH_AUTH_SOCK") else []  # the agent asks nobody
    said = ""
    for chosen in [*tries, *([path] if path not in tries else [])]:
        done = _run("-q", "-Y", "sign", "-f", str(chosen), "-n", namespace, data=data, ask=chosen == path)
        if done.returncode == 0:
            return done.stdout.decode("ascii")
        said = done.stderr.decode("utf-8", errors="replace")
    raise _unusable(path, said)


def verify(public_keys: Sequence[str], identity: str, namespace: str, data: bytes, signature: str) -> None:
    """Returns when `signature` is over `data`, in `namespace`, by one of the keys, which are those of `identity`.

    Raises `SignatureRefused` otherwise, with what is wrong.
    """
    key, made_for = _opened(signature)
    if made_for != namespace:
        raise SignatureRefused(
            f"the signature was made for {made_for!r}, not for {namespace!r}", f"sign with the namespace {namespace}"
        )
    if blob_fingerprint(key) not in {fingerprint(listed) for listed in public_keys}:
        known = ", ".join(fingerprint(listed) for listed in public_keys) or "none"
        raise SignatureRefused(
            f"the signature is by the key {blob_fingerprint(key)}, which is not listed for {identity!r}",
            f"sign with a key of {identity}: {known}",
        )
    with tempfile.TemporaryDirectory() as folder:
        # One fixed principal: ids may hold wildcards and spaces, and the keys given are those of one person only.
        signers, armoured = Path(folder, "signers"), Path(folder, "signature")
        lines = "".join(f'signer namespaces="{namespace}" {plain_key(listed)}\n' for listed in public_keys)
        signers.write_text(lines, encoding="utf-8")
        armoured.write_text(signature, encoding="utf-8")
        words = ("-Y", "verify", "-f", str(signers), "-I", "signer", "-n", namespace, "-s", str(armoured))
        done = _run(*words, data=data)
    if done.returncode != 0:
        raise SignatureRefused(
            f"the signature of {identity!r} does not hold: what was signed is not what is here",
            "sign again what is shown now",
        )


def signed_by(signature: str) -> str:
    """The fingerprint of the key that made a signature. Raises `SignatureRefused` for what is no signature."""
    return blob_fingerprint(_opened(signature)[0])


def key_in(signature: str) -> str:
    """The public key inside a signature, as a line of a .pub file. Whose key it is, no signature says."""
    blob = _opened(signature)[0]
    try:
        kind = next(fields(blob)).decode("ascii")
    except (ValueError, StopIteration) as error:
        raise SignatureRefused("this is no SSH signature", "sign with `ssh-keygen -Y sign`, or --sign KEY") from error
    return f"{kind} {base64.b64encode(blob).decode()}"


def default_key(listed: Iterable[str] = (), folder: Path | None = None) -> Path:
    """The person's own key: one whose public part is listed, else the first of the usual names in `~/.ssh`.

    Raises `InputError` when there is none.
    """
    folder = folder or Path.home() / ".ssh"
    wanted = {plain_key(key) for key in listed}
    for public in sorted(folder.glob("*.pub")) if wanted else ():
        try:
            if plain_key(public.read_text(encoding="utf-8")) in wanted:
                private = public.with_suffix("")
                return private if private.is_file() else public
        except (OSError, ValueError):
            continue
    for name in () if wanted else _DEFAULT_KEYS:
        if (folder / name).is_file():
            return folder / name
    which = "one of the keys that the policy lists for you" if wanted else "a key"
    raise InputError(f"{folder} holds no private part of {which}", "name it: --sign PATH")


def _opened(signature: str) -> tuple[bytes, str]:
    """(public key, namespace) of an armoured signature."""
    text = signature.strip()
    try:
        if not (text.startswith(_BEGIN) and text.endswith(_END)):
            raise ValueError("no armour")
        blob = base64.b64decode("".join(text[len(_BEGIN) : -len(_END)].split()), validate=True)
        if blob[:10] != b"SSHSIG\x00\x00\x00\x01":
            raise ValueError("no SSHSIG of version 1")
        found = fields(blob[10:])
        return next(found), next(found).decode("utf-8")
    except (binascii.Error, ValueError, StopIteration) as error:
        raise SignatureRefused("this is no SSH signature", "sign with `ssh-keygen -Y sign`, or --sign KEY") from error


def _run(*words: str, data: bytes, ask: bool = False) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise InputError(
            "ssh-keygen is not installed, so nothing can be signed or verified",
            "install OpenSSH 8.2 or later (Debian and Ubuntu: apt install openssh-client)",
        )
    at_terminal = ask and os.isatty(2)
    environment = {**os.environ, "LC_ALL": "C"}
    if not at_terminal:
        environment["SSH_ASKPASS_REQUIRE"] = "never"  # no window pops up on somebody's screen
    try:
        return subprocess.run(
            [program, *words],
            input=data,
            capture_output=True,
            env=environment,
            start_new_session=not at_terminal,  # without a terminal of its own it cannot wait for a passphrase
            timeout=_TIMEOUT_AT_TERMINAL_S if at_terminal else _TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(
            "ssh-keygen did not answer in time", "is it waiting for a touch of the security key? try again"
        ) from error


def _unusable(path: Path, said: str) -> InputError:
    if "passphrase" in said:
        return InputError(
            f"the key {path} has a passphrase, and it was not given",
            f"load it into the agent first: ssh-add {path}; then decide again",
        )
    if "too open" in said or "UNPROTECTED" in said:
        return InputError(f"ssh-keygen refuses {path}: others may read it", f"chmod 600 {path}")
    if "not supported" in said or "Usage" in said or "unknown option" in said or "illegal option" in said:
        return InputError("this ssh-keygen cannot sign", "install OpenSSH 8.2 or later")
    if path.suffix == ".pub":
        return InputError(f"the agent does not hold the key {path}", "load it: ssh-add, or name the private key")
    lines = said.strip().splitlines()
    return InputError(
        f"{path} cannot sign: {lines[-1] if lines else 'ssh-keygen gave no reason'}", "name a private key"
    )
