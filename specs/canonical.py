"""Canonical JSON (RFC 8785) and digests: the stored bytes are what is hashed."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from pathlib import Path
from typing import Any

import rfc8785
from pydantic import BaseModel

MAX_SAFE_INTEGER = 2**53 - 1


def plain(value: Any) -> Any:
    """JSON types only: NFC strings, integers past 2**53-1 as decimal strings, NaN and infinity as null.

    Models are dumped in JSON mode. Two keys of one object that NFC makes equal raise `ValueError`.
    """
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json"))
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_SAFE_INTEGER else str(value)
    if isinstance(value, float):
        if MAX_SAFE_INTEGER < abs(value) < 1e21:  # RFC 8785 writes these without a point, so they read as integers
            return str(int(value))
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return plain(value.as_posix())
    if isinstance(value, dict):
        result = {plain(str(key)): plain(item) for key, item in value.items()}
        if len(result) != len(value):
            raise ValueError("two keys are equal after Unicode normalisation")
        return result
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no canonical JSON form")


def canonical_bytes(value: Any) -> bytes:
    """RFC 8785 bytes of a model or of plain data."""
    return rfc8785.dumps(plain(value))


def sha256_bytes(data: bytes) -> str:
    """Hexadecimal SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def digest(value: Any) -> str:
    """Hexadecimal SHA-256 of the canonical bytes of a model or of plain data."""
    return sha256_bytes(canonical_bytes(value))


def sha256_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in pieces of 1 MiB."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_folder(folder: Path) -> str:
    """Digest of a folder: over the sorted list of (relative POSIX path, size, sha256) of its files."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return digest([[p.relative_to(folder).as_posix(), p.stat().st_size, sha256_file(p)] for p in files])
