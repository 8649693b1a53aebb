"""A project in one file, and back: everything a person or an auditor needs, whichever machine it is opened on.

The file is a tar archive (gzip when its name says so). Its last entry, `backup.json`, lists every other one with size
and SHA-256; restoring compares all of them before the project gets its name.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import AwareDatetime, Field, ValidationError

from flows.ledger import Ledger
from flows.ledger.upkeep import record_upkeep
from flows.ledgers import OPEN_STATES
from flows.workspace import ledger_url
from specs.base import Sha256, Strict
from specs.canonical import canonical_bytes, sha256_file
from specs.errors import InputError, LeaseHeld, VerificationFailed
from specs.events import ProjectRestored
from specs.files import storage_errors, sync_folder, sync_tree
from specs.project import Project
from specs.results import Artifact

MANIFEST = "backup.json"
LEFT_OUT = {".git", ".hg", ".svn", "__pycache__", ".venv"}
"""Folders that are no part of a project: version control and caches."""

TOKENS = ".gatewright/tokens.json"
"""Personal tokens belong to one place: in a backup, one that was revoked since would come back to life."""


class Backup(Strict):
    """What a backup holds. `ledger` says whether it is inside, and under which path."""

    format: Literal["gatewright-backup"] = "gatewright-backup"
    version: int = 1
    project: str
    made_at: AwareDatetime
    ledger: str | None
    files: list[Artifact]
    links_left_out: list[str] = Field(default_factory=list)


def back_up(project_dir: Path, spec: Project, target: Path) -> Backup:
    """Write a project to a file, which appears whole or not at all. The ledger is copied as one consistent state.

    Raises `LeaseHeld` while a process works on a run, because its files would be torn.
    """
    url = ledger_url(project_dir, spec)
    ledger = Ledger.open(url)
    try:
        _refuse_working(ledger, project_dir)
        made_at = ledger.now()
    finally:
        ledger.close()
    inside = _inside(project_dir, url)
    listed: list[Artifact] = []
    links: list[str] = []
    part = target.with_name(target.name + ".part")
    with storage_errors(target), tempfile.TemporaryDirectory(prefix="gatewright-backup-") as scratch:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _writer(part, target) as archive:
            for path in _project_files(project_dir, {target.resolve(), part.resolve()}, links):
                name = path.relative_to(project_dir).as_posix()
                if name == TOKENS or (inside and (name == inside or name in (f"{inside}-wal", f"{inside}-shm"))):
                    continue
                listed.append(_add(archive, path, name))
            if inside:
                copy = _snapshot(project_dir / inside, Path(scratch) / "ledger.db")
                listed.append(_add(archive, copy, inside))
            backup = Backup(
                project=spec.project, made_at=made_at, ledger=inside, files=listed, links_left_out=sorted(links)
            )
            data = canonical_bytes(backup)
            entry = tarfile.TarInfo(MANIFEST)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        with part.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(part, target)
        sync_folder(target.parent)
    return backup


def _refuse_working(ledger: Ledger, project_dir: Path) -> None:
    for row in ledger.runs(states=OPEN_STATES):
        if not (project_dir / "runs" / row.run).is_dir():
            continue
        held = ledger.lease_holder(row.run)
        if held is not None and held[1]:
            raise LeaseHeld(f"{held[0]} works on run {row.run}", "stop it first: gatewright stop; resume afterwards")


def _inside(project_dir: Path, url: str | Path) -> str | None:
    """The path of a SQLite ledger inside the project, relative to it; None for one that lies elsewhere."""
    place = url if isinstance(url, Path) else _sqlite_place(url)
    if place is None:
        return None
    try:
        return place.resolve().relative_to(project_dir.resolve()).as_posix()
    except ValueError:
        return None


def _sqlite_place(url: str) -> Path | None:
    scheme, found, place = url.partition("://")
    if not found:
        return Path(url)
    return Path(place[1:]) if scheme.split("+")[0] == "sqlite" else None


def _project_files(project_dir: Path, apart: set[Path], links: list[str]) -> Iterator[Path]:
    for folder, names, files in os.walk(project_dir):
        for name in sorted(names):
            if (Path(folder) / name).is_symlink():
                links.append((Path(folder) / name).relative_to(project_dir).as_posix())
        names[:] = sorted(n for n in names if n not in LEFT_OUT and not (Path(folder) / n).is_symlink())
        for name in sorted(files):
            path = Path(folder) / name
            if path.is_symlink():
                links.append(path.relative_to(project_dir).as_posix())
            elif path.is_file() and path.resolve() not in apart:
                yield path


@contextlib.contextmanager
def _writer(part: Path, target: Path) -> Iterator[tarfile.TarFile]:
    zipped = target.name.endswith((".gz", ".tgz"))
    with tarfile.open(part, "w:gz" if zipped else "w", format=tarfile.PAX_FORMAT) as archive:
        yield archive


def _add(archive: tarfile.TarFile, path: Path, name: str) -> Artifact:
    size, digest = path.stat().st_size, sha256_file(path)
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, int(path.stat().st_mtime), 0o644
    with path.open("rb") as file:
        archive.addfile(entry, file)
    return Artifact(path=name, bytes=size, sha256=digest)


def _snapshot(database: Path, copy: Path) -> Path:
    """One consistent state of a SQLite file, whoever writes to it meanwhile."""
    source = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=60)
    target = sqlite3.connect(copy)
    with contextlib.closing(source), contextlib.closing(target):
        source.backup(target)
    return copy


def restore(file: Path, target: Path) -> Backup:
    """A project from its backup, under a name that must be free. Everything is compared before it gets that name.

    Raises `InputError` for a file that is no backup, `VerificationFailed` for one that was changed or cut.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} exists and is not empty", "name a folder that does not exist yet")
    partial = target.with_name(target.name + ".restoring")
    with storage_errors(target):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            backup = _unpacked(file, partial)
            _compare(file, partial, backup)
            (partial / TOKENS).unlink(missing_ok=True)  # earlier versions put it in
            _settle(partial, target, backup, sha256_file(file))
            sync_tree(partial)
            if target.exists():
                target.rmdir()
            os.rename(partial, target)
            sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return backup


def _unpacked(file: Path, partial: Path) -> Backup:
    manifest = None
    try:
        with tarfile.open(file, "r:*") as archive:
            for entry in archive:
                name = PurePosixPath(entry.name)
                if not entry.isreg() or name.is_absolute() or ".." in name.parts or "\\" in entry.name:
                    raise VerificationFailed(f"{file} holds {entry.name!r}, which no backup has", "take another copy")
                content = archive.extractfile(entry)
                assert content is not None  # a regular file has one
                if entry.name == MANIFEST:
                    manifest = content.read()
                    continue
                path = partial.joinpath(*name.parts)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as out:
                    shutil.copyfileobj(content, out)
    except FileExistsError as error:
        raise VerificationFailed(f"{file} holds {error.filename} twice", "take another copy of the backup") from error
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise VerificationFailed(f"{file} cannot be read as a backup: {error}", "take another copy of it") from error
    except OSError as error:
        if error.errno is None:  # gzip says so of its own
            raise VerificationFailed(
                f"{file} cannot be read as a backup: {error}", "take another copy of it"
            ) from error
        raise
    if manifest is None:
        raise VerificationFailed(f"{file} has no {MANIFEST}: it was cut, or is no backup", "take another copy of it")
    try:
        return Backup.model_validate_json(manifest)
    except ValidationError as error:
        raise VerificationFailed(f"{MANIFEST} in {file} cannot be read", "take another copy of the backup") from error


def _compare(file: Path, partial: Path, backup: Backup) -> None:
    there = {p.relative_to(partial).as_posix() for p in partial.rglob("*") if p.is_file()}
    listed = {f.path: f for f in backup.files}
    faults = [f"{name} is missing" for name in sorted(listed.keys() - there)]
    faults += [f"{name} is not listed" for name in sorted(there - listed.keys())]
    faults += [
        f"{name} was changed"
        for name in sorted(there & listed.keys())
        if (partial / name).stat().st_size != listed[name].bytes or sha256_file(partial / name) != listed[name].sha256
    ]
    if faults:
        more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise VerificationFailed(f"{file} is not whole: {'; '.join(faults[:3])}{more}", "take another copy of it")


def _settle(partial: Path, target: Path, backup: Backup, digest: Sha256) -> None:
    """Make the ledger at home in its new place: no process of the old one holds a run here."""
    if backup.ledger is None:
        return
    ledger = Ledger.open(partial / backup.ledger)
    try:
        ledger.moved_to(target.resolve())
        payload = ProjectRestored(backup=digest, made_at=backup.made_at, files=len(backup.files))
        record_upkeep(ledger, backup.project, payload, "gatewright")
    finally:
        ledger.close()
