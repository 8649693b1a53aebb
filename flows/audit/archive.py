"""Reading a ZIP that somebody else made. The file is taken for hostile until it is read to its end.

Refused before anything is unpacked: names that lead out of a folder or mean one file twice, links, encryption, odd
compression, too many entries, more bytes than a bundle of this size can hold. Read within the sizes that the list
of entries names; a damaged entry is a finding, never an exception that ends the audit.
"""

from __future__ import annotations

import hashlib
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specs.errors import InputError, VerificationFailed

MAX_ENTRIES = 100_000
MAX_DOCUMENT_BYTES = 64 << 20
MAX_LINE_BYTES = 16 << 20
MAX_RATIO = 100
"""Uncompressed to compressed. Events hold random digests, so that they shrink about tenfold; bombs a thousandfold."""

_FLOOR_BYTES = 64 << 20
_PIECE = 1 << 20
_READ_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, NotImplementedError)


class Damaged(Exception):
    """An entry cannot be read; the text says which and why."""


class Archive:
    """The entries of a ZIP whose list was found safe."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._zip = file
        self.entries = {info.filename: info for info in file.infolist()}

    def read(self, name: str, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
        """The bytes of one entry. Raises `Damaged`."""
        if name not in self.entries:
            raise Damaged(f"{name} is missing")
        if self.entries[name].file_size > limit:
            raise Damaged(f"{name} is larger than {limit >> 20} MiB")
        return b"".join(self._pieces(name))

    def digest(self, name: str) -> tuple[str, int]:
        """SHA-256 and size of one entry, which may be large. Raises `Damaged`."""
        found, size = hashlib.sha256(), 0
        for piece in self._pieces(name):
            found.update(piece)
            size += len(piece)
        return found.hexdigest(), size

    def lines(self, name: str) -> Iterator[bytes]:
        """The lines of one entry without their ends, one at a time. Raises `Damaged`."""
        rest = b""
        for piece in self._pieces(name):
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
            if len(rest) > MAX_LINE_BYTES:
                raise Damaged(f"{name} has a line of more than {MAX_LINE_BYTES >> 20} MiB")
        if rest:
            yield rest

    def _pieces(self, name: str) -> Iterator[bytes]:
        try:
            with self._zip.open(self.entries[name]) as entry:
                while piece := entry.read(_PIECE):
                    yield piece
        except KeyError:
            raise Damaged(f"{name} is missing") from None
        except _READ_ERRORS as error:
            raise Damaged(f"{name} is damaged: {error}") from error


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """The archive in a file. Raises `InputError` where there is no ZIP, `VerificationFailed` for an unsafe one."""
    try:
        file = zipfile.ZipFile(path)
    except OSError as error:
        raise InputError(
            f"cannot read the bundle {path}: {error.strerror or error}",
            "write one: gatewright audit export FILE RUN",
        ) from error
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise _no_zip(path, error) from error
    with file:
        faults = unsafe(file.infolist(), path.stat().st_size)
        if faults:
            more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
            raise VerificationFailed(
                f"{path} is no bundle that can be read safely: {'; '.join(faults[:3])}{more}",
                "nothing of it was unpacked; ask for a bundle made by `gatewright audit export`",
            )
        yield Archive(file)


def _no_zip(path: Path, error: Exception) -> Exception:
    with path.open("rb") as file:
        begins_as_one = file.read(4) == b"PK\x03\x04"
    if begins_as_one:
        return VerificationFailed(
            f"{path} begins as a bundle and its end is missing or damaged: {error}",
            "it was cut or changed on its way; copy it again and compare its SHA-256",
        )
    return InputError(f"{path} is not a bundle: {error}", "`gatewright audit export FILE RUN` writes one")


def unsafe(entries: list[zipfile.ZipInfo], size: int) -> list[str]:
    """Why a list of entries must not be unpacked; `size` is that of the whole file in bytes. Pure."""
    faults = []
    if len(entries) > MAX_ENTRIES:
        return [f"it has {len(entries)} entries, more than {MAX_ENTRIES}"]
    seen: dict[str, str] = {}
    for info in entries:
        name = info.orig_filename  # zipfile cuts a name at a NUL; the whole one is judged
        if why := _unsafe_name(name):
            faults.append(f"{name[:80]!r} {why}")
            continue
        folded = unicodedata.normalize("NFC", name).casefold()
        if folded in seen:
            faults.append(f"{name[:80]!r} is there twice" + (f", as {seen[folded]!r}" if seen[folded] != name else ""))
        seen[folded] = name
        mode = info.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            faults.append(f"{name[:80]!r} is a link or a device")
        if info.flag_bits & 0x1:
            faults.append(f"{name[:80]!r} is encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            faults.append(f"{name[:80]!r} is compressed in a way that no bundle is")
    parents = {"/".join(folded.split("/")[:i]) for folded in seen for i in range(1, folded.count("/") + 1)}
    faults += [f"{seen[name][:80]!r} is a file and a folder" for name in sorted(parents & seen.keys())]
    total = sum(info.file_size for info in entries)
    if total > _FLOOR_BYTES + MAX_RATIO * size:
        faults.append(f"{size} bytes would unpack to {total}: that is a bomb")
    return faults


def _unsafe_name(name: str) -> str:
    parts = name.split("/")
    if not name or name.endswith("/"):
        return "is no file"
    if name.startswith("/") or ":" in name or "\\" in name or "" in parts or "." in parts or ".." in parts:
        return "leads out of its folder"
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        return "holds a control character"
    if len(name) > 1000 or any(len(part.encode("utf-8", "replace")) > 200 for part in parts):
        return "is too long"
    return ""
