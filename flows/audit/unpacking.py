"""Reading a bundle back as a history. Everything in the file is untrusted; what is wrong with it becomes findings."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_core import from_json

from flows.audit.archive import MAX_DOCUMENT_BYTES, Archive, Damaged, opened
from flows.audit.bundle import EVENTS, FORMAT, LIST, OBJECTS, UPKEEP, VERSION
from flows.audit.files import RunFiles
from flows.audit.history import History
from flows.ledger.chain import Stored
from specs.base import Sha256, Strict
from specs.canonical import sha256_bytes
from specs.errors import InputError, VerificationFailed
from specs.files import storage_errors

MAX_DOCUMENTS_BYTES = 1 << 30


class Listed(Strict):
    """Size and digest of one entry."""

    bytes: int = Field(ge=0)
    sha256: Sha256


class BundleList(Strict):
    """`bundle.json`. Version 1 only names its entries; version 2 also has digests, the count and the head."""

    format: Literal["gatewright-bundle"]
    version: int = Field(ge=1, le=VERSION)
    run: str = Field(min_length=1, max_length=128)
    files: dict[str, Listed] | list[str]
    events: int | None = None
    head: Sha256 | None = None
    left_out: dict[str, int] = Field(default_factory=dict)


@dataclass
class BundleFacts:
    """What a bundle says of itself, and what is wrong with it as a file."""

    listed: BundleList
    entries: int
    faults: list[str] = field(default_factory=list)


@contextmanager
def unpacked(
    path: Path, *, anchored_at: int = 0, keep: frozenset[str] = frozenset()
) -> Iterator[tuple[History, BundleFacts]]:
    """The history in a bundle, whose documents lie in a folder that goes away again.

    Raises `InputError` where there is no bundle, `VerificationFailed` for one that is cut or unsafe to unpack.
    """
    with opened(path) as archive, TemporaryDirectory(prefix="gatewright-audit-") as place:
        folder = Path(place) / "run"
        facts = BundleFacts(_list_of(archive, path), len(archive.entries))
        with storage_errors(folder):
            objects = _unpack(archive, folder, facts)
        history = History(facts.listed.run, RunFiles(folder, whole=False, objects=objects), None, keep, anchored_at)
        history.follow(_rows(archive, EVENTS, facts))
        if UPKEEP in archive.entries:
            history.follow_upkeep(_rows(archive, UPKEEP, facts))
        yield history, facts


def _list_of(archive: Archive, path: Path) -> BundleList:
    try:
        data = archive.read(LIST)
        raw = json.loads(data)
        version = raw.get("version") if isinstance(raw, dict) and raw.get("format") == FORMAT else None
        if isinstance(version, int) and version > VERSION:
            raise InputError(
                f"{path} is a bundle of version {version}; this Gatewright reads versions 1 to {VERSION}",
                "verify it with the newer version that wrote it",
            )
        return BundleList.model_validate_json(data)
    except (Damaged, ValidationError, ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, Damaged) else "it does not read as the list of a bundle"
        raise VerificationFailed(
            f"{path} is no bundle that can be verified: {LIST}: {why}",
            "`gatewright audit export FILE RUN` writes one",
        ) from error


def _unpack(archive: Archive, folder: Path, facts: BundleFacts) -> dict[str, str]:
    """Write the documents below `folder`, digest the objects, compare both with the list; returns the objects."""
    folder.mkdir(parents=True, exist_ok=True)
    files = facts.listed.files
    names = set(archive.entries) - {LIST}
    facts.faults += [f"{name} is listed and not there" for name in sorted(set(files) - names)]
    facts.faults += [f"{name} is there and not listed" for name in sorted(names - set(files))]
    objects: dict[str, str] = {}
    room = MAX_DOCUMENTS_BYTES
    for name in sorted(names):
        try:
            if name.startswith(OBJECTS) or name in (EVENTS, UPKEEP):
                sha256, size = archive.digest(name)
                if name.startswith(OBJECTS):
                    objects[name.removeprefix(OBJECTS)] = sha256
            else:
                sha256, size = _document(archive, name, folder, min(room, MAX_DOCUMENT_BYTES))
                room -= size
        except Damaged as error:
            facts.faults.append(str(error))
            continue
        listed = files.get(name) if isinstance(files, dict) else None
        if listed is not None and (listed.sha256, listed.bytes) != (sha256, size):
            facts.faults.append(f"{name} is not what the list says")
    return objects


def _document(archive: Archive, name: str, folder: Path, limit: int) -> tuple[str, int]:
    data = archive.read(name, limit)
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return sha256_bytes(data), len(data)


def _rows(archive: Archive, name: str, facts: BundleFacts) -> Iterator[Stored]:
    """The events; a line that cannot be read is a row whose hash cannot be right."""
    position = 0
    try:
        for position, line in enumerate(archive.lines(name), start=1):
            yield _row(line, position, facts.listed.run)
    except Damaged as error:
        if str(error) not in facts.faults:
            facts.faults.append(f"{error}, after event {position}")


def _row(line: bytes, position: int, run: str) -> Stored:
    try:
        fields: Any = from_json(line)
        raw = fields.get("body_base64")
        body = base64.b64decode(raw, validate=True) if raw is not None else fields["body"].encode()
        hash_ = str(fields["hash"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return Stored(run, position, "", "", "", line, "")
    try:
        inner: Any = from_json(body)
        texts = (inner["run"], inner["kind"], inner["actor"], inner["at"])
        sequence = inner["sequence"]
        if type(sequence) is not int or not all(isinstance(text, str) for text in texts):
            raise ValueError("a field is of another type")
    except (ValueError, KeyError, TypeError):
        return Stored(run, position, "", "", "", body, hash_)
    return Stored(texts[0], sequence, texts[1], texts[2], texts[3], body, hash_)
