"""Checkpoints: complete or not there.

Written into `<step>.s<session>.partial`, fsynced, described by a manifest with the digest of every file, and only then
renamed to `<step>`. The newest one whose manifest verifies is used on resume; others are named and left. An old one is
deleted only after the next is published, and never while it is pinned (`<step>.pin` says why); one that was passed over
neither counts as kept nor is deleted. Free space is checked before the start and before each save.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import Field

from specs.base import Language, Strict
from specs.bilingual import Texts
from specs.canonical import sha256_file
from specs.errors import StorageError, WorkerError
from specs.files import publish_folder, storage_errors, write_json

MANIFEST = "manifest.json"
DELETING = ".deleting"
PIN = ".pin"
LOCK = "worker.lock"
LOCK_WAIT_S = 30.0
"""An orphaned worker ends as soon as it sees that its parent is gone; this is how long its successor waits for it."""

SPACE_MARGIN = 1.1


def free_bytes(folder: Path) -> int:
    """Free space of the volume that holds `folder`, for this user."""
    return shutil.disk_usage(folder).free


@dataclass(frozen=True)
class Checkpoint:
    """A complete, verified checkpoint."""

    step: int
    folder: Path


_WHY = Texts(
    {
        "unfinished": ("the save was not finished", "保存未完成"),
        "damaged": ("it was damaged", "已损坏"),
        "no_manifest": ("its manifest is missing or unreadable", "清单缺失或无法读取"),
        "file_missing": ("{file} is missing", "缺少 {file}"),
        "file_changed": ("{file} is not what was written", "{file} 与写入时不同"),
    }
)


class Fault(Strict):
    """Why a folder is no complete checkpoint: a key, and the file that it is about."""

    key: str
    file: str = ""

    def words(self, language: Language = "en") -> str:
        """The fault in one phrase."""
        return _WHY(language, self.key, file=self.file)


class Passed(Strict):
    """A folder that is no checkpoint, and why. It is left where it is. `sessions.jsonl` has one for each."""

    name: str
    reason: str = Field(description="in English")
    fault: Fault | None = Field(None, description="null in records made before faults had keys")

    @classmethod
    def over(cls, name: str, fault: Fault) -> Passed:
        """A folder that was passed over for this fault."""
        return cls(name=name, reason=fault.words(), fault=fault)

    def words(self, language: Language) -> str:
        """Why, as far as it can be said in this language."""
        return self.fault.words(language) if self.fault and self.fault.key in _WHY else self.reason


class CheckpointStore:
    """The checkpoints of one training in one folder."""

    def __init__(self, folder: Path, keep: int, free: Callable[[Path], int] = free_bytes, session: int = 1) -> None:
        self.folder = folder
        self.keep = keep
        self.free = free
        self.session = session
        self.passed: frozenset[str] = frozenset()
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
        """Hold the folder for this process alone; the system releases it when the process ends, however it ends.

        Raises `WorkerError` when another worker still holds it after `wait_s`.
        """
        lock = FileLock(self.folder / LOCK)
        try:
            with storage_errors(self.folder):
                lock.acquire(timeout=wait_s, poll_interval=0.1)
        except Timeout:
            raise WorkerError(
                f"another worker still writes to {self.folder}",
                "wait for it or end it; two workers never write the same training",
            ) from None
        try:
            yield
        finally:
            lock.release()

    def newest(self) -> tuple[Checkpoint | None, list[Passed]]:
        """The newest checkpoint that verifies, and every folder that was passed over on the way to it."""
        passed: list[Passed] = []
        found = None
        for path in sorted(self._folders(), key=lambda p: p.name, reverse=True):
            if path.name.endswith(DELETING):
                continue
            if not path.name.isdecimal():
                passed.append(Passed.over(path.name, Fault(key=_kind(path))))
            elif (fault := find_fault(path)) is not None:
                passed.append(Passed.over(path.name, fault))
            else:
                found = Checkpoint(int(path.name), path)
                break
        self.passed = frozenset(one.name for one in passed)
        return found, passed

    def at(self, step: int) -> Checkpoint:
        """The checkpoint of a step that another rank published."""
        return Checkpoint(step, self.folder / f"{step:08d}")

    def publish(self, step: int, write: Callable[[Path], None], expected_bytes: int) -> Checkpoint:
        """Write a checkpoint through `write(folder)` and make it visible, then delete what is past `keep`.

        Raises `StorageError` before writing when the volume cannot hold `expected_bytes`.
        """
        self.require_space(expected_bytes, f"the checkpoint of step {step}")
        partial = self.folder / f"{step:08d}.s{self.session}.partial"
        target = self.folder / f"{step:08d}"
        with storage_errors(partial):
            if partial.exists():
                shutil.rmtree(partial)
            if target.exists():  # it failed verification when this session began, else we would be past this step
                os.rename(target, target.with_name(f"{target.name}.s{self.session}.damaged"))
                self.passed -= {target.name}
            partial.mkdir(parents=True)
            write(partial)
            files = sorted(p for p in partial.rglob("*") if p.is_file())
            listed = [[p.relative_to(partial).as_posix(), p.stat().st_size, sha256_file(p)] for p in files]
            write_json(partial / MANIFEST, {"step": step, "files": listed})
        self._make_visible(partial, target)
        self._retire()
        return Checkpoint(step, target)

    def require_space(self, needed_bytes: int, what: str) -> None:
        """Raise `StorageError` when the volume has less than `needed_bytes` and a tenth free."""
        free = self.free(self.folder)
        if free < needed_bytes * SPACE_MARGIN:
            raise StorageError(
                f"no space for {what}: it needs {_mebibytes(needed_bytes * SPACE_MARGIN)}, "
                f"{_mebibytes(free)} are free in {self.folder}",
                "free some space on this volume, then `gatewright resume`; the last checkpoint is untouched",
            )

    def require_space_for_run(self, checkpoint_bytes: int) -> None:
        """Raise `StorageError` unless `keep` checkpoints and the one being written fit, less those already there."""
        there = sum(1 for path in self._folders() if path.name.isdecimal() and path.name not in self.passed)
        missing = max(self.keep + 1 - there, 1)
        self.require_space(missing * checkpoint_bytes, f"{missing} checkpoints")

    def _make_visible(self, partial: Path, target: Path) -> None:
        publish_folder(partial, target)

    def pin(self, step: int, why: str) -> None:
        """Keep the checkpoint of `step` whatever comes after it; `why` is for whoever finds it."""
        write_json(self.folder / f"{step:08d}{PIN}", {"step": step, "why": why})

    def pinned(self) -> set[str]:
        """Names of the checkpoints that are never deleted."""
        return {path.name.removesuffix(PIN) for path in self.folder.glob(f"*{PIN}")}

    def _retire(self) -> None:
        """Delete what is past `keep` and not pinned, and what an earlier deletion left."""
        complete = sorted(p for p in self._folders() if p.name.isdecimal() and p.name not in self.passed)
        pinned = self.pinned()
        for path in [p for p in complete[: -self.keep] if p.name not in pinned]:
            with suppress(OSError):  # what cannot be deleted costs space, not the training
                os.rename(path, path.with_name(path.name + DELETING))
        for path in self._folders():
            if path.name.endswith(DELETING):
                shutil.rmtree(path, ignore_errors=True)

    def _folders(self) -> list[Path]:
        return [p for p in self.folder.iterdir() if p.is_dir() and p.name[:8].isdecimal()]


def find_fault(folder: Path) -> Fault | None:
    """Why a folder is not a complete checkpoint; null when its manifest verifies."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        listed = {name: (size, sha256) for name, size, sha256 in manifest["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return Fault(key="no_manifest")
    for name, (size, sha256) in sorted(listed.items()):
        path = folder / name
        if not path.is_file():
            return Fault(key="file_missing", file=name)
        if path.stat().st_size != size or sha256_file(path) != sha256:
            return Fault(key="file_changed", file=name)
    return None


def _kind(folder: Path) -> str:
    return "damaged" if folder.name.endswith(".damaged") else "unfinished"


def _mebibytes(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"
