"""SSH public keys as people write them: `type base64 comment`, checked, compared and named by fingerprint. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Iterator

KEY_TYPES = (
    "ssh-ed25519",
    "sk-ssh-ed25519@openssh.com",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-rsa",
)


def plain_key(line: str) -> str:
    """`type base64` of a public key, its comment left out. Raises `ValueError` for what is no public key."""
    if "PRIVATE KEY" in line:
        raise ValueError("is a private key; never write one here, write the line of the file that ends in .pub")
    words = line.split()
    if len(words) < 2 or words[0] not in KEY_TYPES:
        raise ValueError("is no SSH public key; write the line of a .pub file: ssh-ed25519 AAAA...")
    try:
        blob = base64.b64decode(words[1], validate=True)
        named = next(fields(blob)).decode("ascii", errors="replace")
    except (binascii.Error, ValueError, StopIteration) as error:
        raise ValueError("is cut or misspelt; copy the whole line of the .pub file") from error
    if named != words[0]:
        raise ValueError(f"says {words[0]} and holds a key of another kind; copy the whole line of the .pub file")
    return f"{words[0]} {words[1]}"


def fingerprint(key: str) -> str:
    """`SHA256:...` of a public key, as ssh-keygen prints it."""
    return blob_fingerprint(base64.b64decode(key.split()[1]))


def blob_fingerprint(blob: bytes) -> str:
    """The same, of the bytes inside the base64."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def fields(blob: bytes) -> Iterator[bytes]:
    """The length-prefixed strings of RFC 4251, section 5. Raises `ValueError` where a length leads past the end."""
    at = 0
    while at < len(blob):
        if at + 4 > len(blob):
            raise ValueError("a length is cut")
        (length,) = struct.unpack_from(">I", blob, at)
        if at + 4 + length > len(blob):
            raise ValueError("a field is cut")
        yield blob[at + 4 : at + 4 + length]
        at += 4 + length
