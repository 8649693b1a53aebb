"""Durable writing: beside the target, fsync, rename, fsync of the folder. Published things are never rewritten."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specs.canonical import canonical_bytes
from specs.errors import StorageError


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or a folder that cannot be written into a `StorageError` that names the place."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StorageError(
                f"no space left while writing {path}",
                "free some space on this volume, then `gatewright resume`",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise StorageError(f"cannot write {path}: {error.strerror}", "check the owner of the folder") from error
        raise


def sync_folder(folder: Path) -> None:
    """fsync a folder, so that a rename in it survives a power loss. Does nothing where folders cannot be opened."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically and durably; raises `StorageError` on a full disk."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        sync_folder(path.parent)


def keep_if_possible(path: Path, data: bytes, say: Callable[[str], None]) -> bool:
    """Write what can be made again. Where the place cannot be written it is said, and what is at work goes on."""
    try:
        write_bytes(path, data)
    except (OSError, StorageError) as error:
        say(
            f"not kept for the next time: {error if isinstance(error, StorageError) else error.strerror}: {path.parent}"
        )
        return False
    return True


def write_json(path: Path, value: Any) -> bytes:
    """Write canonical JSON atomically; returns the stored bytes."""
    data = canonical_bytes(value)
    write_bytes(path, data)
    return data


def write_lines(path: Path, records: Iterable[Any]) -> None:
    """Write canonical JSON, one record a line, atomically."""
    write_bytes(path, b"".join(canonical_bytes(record) + b"\n" for record in records))


def read_lines(path: Path, *, missing_ok: bool = False) -> list[dict[str, Any]]:
    """The records of a file of JSON lines. Only a line feed ends one: texts may hold other breaks of Unicode.

    With `missing_ok` a file that is not there has none. Raises `ValueError` with file and line of what is no JSON.
    """
    if missing_ok and not path.is_file():
        return []
    records = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            try:
                records.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path.name}:{number}: {error}") from error
    return records


def read_document(path: Path) -> dict[str, Any]:
    """The JSON object in a file that a stage may leave; empty where it left none."""
    found: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return found


def sync_tree(folder: Path) -> None:
    """fsync every file and folder below `folder`, and `folder` itself."""
    with storage_errors(folder):
        for path in sorted(folder.rglob("*")):
            if path.is_dir():
                sync_folder(path)
            elif path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        sync_folder(folder)


def publish_folder(partial: Path, target: Path) -> None:
    """Make a finished folder visible under its final name, durably. `target` must not exist."""
    with storage_errors(target):
        sync_tree(partial)
        if target.exists():
            raise FileExistsError(f"{target} is already published")
        os.rename(partial, target)
        sync_folder(target.parent)
