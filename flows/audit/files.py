"""The files of a run as an audit sees them: a run's own folder, or what a bundle brought of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from flows.gatefiles import attempt_folder
from specs.canonical import sha256_file

_LEFT_OUT_FOLDERS = ("artifacts", "plots")


@dataclass
class Comparison:
    """What comparing files with their recorded digests gave."""

    faults: list[str] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)
    compared: int = 0


@dataclass(frozen=True)
class RunFiles:
    """`folder` holds the files that can be opened. In a bundle `whole` is false: artifacts may have been left out.

    `objects` maps the digest that an artifact travels under to the digest of its bytes; `removed` names files whose
    removal was asked for and recorded, with their digest and the reason.
    """

    folder: Path
    whole: bool = True
    objects: Mapping[str, str] = field(default_factory=dict)
    removed: dict[str, tuple[str, str]] = field(default_factory=dict)
    _hashes: dict[str, str] = field(default_factory=dict, repr=False)
    _links: dict[Path, bool] = field(default_factory=dict, repr=False)

    def compare(self, name: str, expected: str, into: Comparison, said: str = "") -> None:
        """Compare one file, by its path relative to the run's folder, with its digest. `said` replaces its name."""
        shown = said or name
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or "\\" in name or "\0" in name:
            into.faults.append(f"{shown}: its path leads out of the run's folder")
            return
        path = self.folder / name
        if path.is_symlink():
            into.faults.append(f"{shown} is a link")
        elif self._behind_link(path.parent):
            into.faults.append(f"{shown} lies behind a link")
        elif path.is_file():
            into.compared += 1
            if self._sha256(name, path) != expected:
                into.faults.append(f"{shown} was changed")
        elif expected in self.objects:
            into.compared += 1
            if self.objects[expected] != expected:
                into.faults.append(f"{shown} was changed")
        elif name in self.removed and self.removed[name][0] == expected:
            into.unverified.append(f"{shown} was removed on request: {self.removed[name][1]}")
        elif not self.whole and left_out(name):
            into.unverified.append(f"{shown} is not in the bundle")
        else:
            into.faults.append(f"{shown} is missing")

    def _behind_link(self, folder: Path) -> bool:
        """Whether a folder between the run's own and a file is a link: what lies behind it is not the run's."""
        if folder == self.folder or folder == folder.parent:
            return False
        if folder not in self._links:
            self._links[folder] = folder.is_symlink() or self._behind_link(folder.parent)
        return self._links[folder]

    def _sha256(self, name: str, path: Path) -> str:
        if name not in self._hashes:
            self._hashes[name] = sha256_file(path)
        return self._hashes[name]

    def unlisted(self, stage: str, attempt: int, listed: Sequence[str]) -> list[str]:
        """Files below the artifacts of an attempt that its evidence does not list."""
        folder = attempt_folder(self.folder, stage, attempt)
        known = set(listed)
        tops = {"artifacts", *(path.split("/")[0] for path in known)}
        return [
            path.relative_to(self.folder).as_posix()
            for top in sorted(tops)
            for path in sorted((folder / top).rglob("*"))
            if (path.is_symlink() or not path.is_dir()) and path.relative_to(folder).as_posix() not in known
        ]


def left_out(name: str) -> bool:
    """Whether a bundle may lack this file: artifacts, plots, the page of a report, transcripts, released files."""
    parts = PurePosixPath(name).parts
    if parts[0] in ("transcripts", "release"):
        return name != "release/manifest.json"
    return len(parts) >= 3 and (parts[2] in _LEFT_OUT_FOLDERS or parts[2:] == ("report.html",))
