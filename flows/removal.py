"""Removing a person's data from runs on request. The record stays whole: it knows the digest of what is gone.

Raw files are the project's own and are not touched here; what the ledger and the documents of a gate say cannot be
taken back, and is named where it holds the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from flows.ledger import Ledger
from flows.ledger.upkeep import record_upkeep, upkeep_of
from flows.workspace import Workspace
from specs.canonical import sha256_file
from specs.errors import InputError, LeaseHeld
from specs.events import DataRemoved, RemovedFile
from specs.files import storage_errors, sync_folder

_RECORD = ("spec.json", "policy.json", "environment.json", "evidence.json", "gate.json", "proposal.json")
"""Names of documents that carry the record; they hold digests, counts and words, no rows of data."""


@dataclass(frozen=True)
class Search:
    """Where a text was found: in files that can be removed, in documents of the record, in events (by number)."""

    removable: list[str]
    record: list[str]
    events: list[int]


def is_record(path: str) -> bool:
    """Whether a path of a run, relative to its folder, is a document of the record."""
    return path.rsplit("/", 1)[-1] in _RECORD or path.startswith(("proposals/", "gates/", "transcripts/", "specs/"))


def search(workspace: Workspace, ledger: Ledger, text: str) -> Search:
    """Every file and event of a run that holds a text. Tables (Parquet) are read by cell, all else by its bytes."""
    if len(text.strip()) < 3:
        raise InputError(f"{text!r} is too short to look for", "give a whole name, number or address")
    needles = sorted({text.encode(), json.dumps(text).strip('"').encode()})
    found = [path for path in _files(workspace.folder) if _holds(workspace.folder / path, text, needles)]
    bodies = ledger.stored(workspace.run) if ledger.knows(workspace.run) else []
    events = [row.sequence for row in bodies if any(n in row.body for n in needles)]
    return Search([p for p in found if not is_record(p)], [p for p in found if is_record(p)], events)


def _files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(folder).as_posix()


def _holds(path: Path, text: str, needles: list[bytes]) -> bool:
    if path.suffix == ".parquet":
        import polars as pl

        try:
            table = pl.read_parquet(path)
        except (pl.exceptions.PolarsError, OSError):
            pass  # not a table after all: its bytes are looked at
        else:
            return any(text in cell for row in table.iter_rows() for cell in _texts(row))
    longest, tail = max(len(n) for n in needles), b""
    with path.open("rb") as file:
        while block := file.read(2**20):
            if any(n in tail + block for n in needles):
                return True
            tail = block[-longest:]
    return False


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def remove(
    workspace: Workspace, ledger: Ledger, project: str, paths: Iterable[str], actor: str, reason: str
) -> DataRemoved:
    """Record the removal of files of a run, then delete them. Paths are relative to the run's folder.

    Raises `InputError` for a path that is none of the run or is part of the record, `LeaseHeld` while somebody works.
    """
    if not reason.strip():
        raise InputError("a removal needs a reason", 'say who asked and why with -m "..."')
    held = ledger.lease_holder(workspace.run)
    if held is not None and held[1]:
        raise LeaseHeld(f"{held[0]} works on run {workspace.run}", "stop it first: gatewright stop")
    chosen = sorted({path for given in paths for path in _named(workspace.folder, given)})
    if not chosen:
        raise InputError("no file is named", "name files of the run, or find them with --containing TEXT")
    payload = DataRemoved(
        run=workspace.run,
        reason=reason,
        files=[
            RemovedFile(path=p, sha256=sha256_file(workspace.folder / p), bytes=(workspace.folder / p).stat().st_size)
            for p in chosen
        ],
    )
    record_upkeep(ledger, project, payload, actor)
    for path in chosen:
        with storage_errors(workspace.folder / path):
            (workspace.folder / path).unlink()
            sync_folder((workspace.folder / path).parent)
    return payload


def _named(folder: Path, given: str) -> list[str]:
    """The files that a path names: itself, or everything below it. What lies behind a link is not the run's."""
    place = folder / given
    if Path(given).is_absolute() or ".." in Path(given).parts or not place.exists():
        raise InputError(f"{given} is no file of this run", f"name it relative to {folder}")
    if place.resolve() != folder.resolve() / given:
        raise InputError(f"{given} is a link or lies behind one", f"it leads to {place.resolve()}: remove it there")
    given = Path(given).as_posix()
    files = [given] if place.is_file() else [f"{given.rstrip('/')}/{p}" for p in _files(place)]
    kept = [p for p in files if is_record(p)]
    if kept and place.is_file():
        raise InputError(
            f"{given} is part of the record and cannot be removed",
            "it holds digests, counts and words; without it the history could not be verified",
        )
    return [p for p in files if p not in kept]


def removed_files(ledger: Ledger, project: str, run: str) -> dict[str, RemovedFile]:
    """What was removed from a run on request, by path relative to its folder."""
    found: dict[str, RemovedFile] = {}
    for event in upkeep_of(ledger, project):
        payload = event.read()
        if isinstance(payload, DataRemoved) and payload.run == run:
            found.update({file.path: file for file in payload.files})
    return found
