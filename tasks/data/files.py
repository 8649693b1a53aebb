"""From a source of the spec to its files: folders and globs resolved, caps checked, before anything is parsed."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Sequence
from pathlib import Path

from specs.errors import SourceError
from specs.project import AnySource
from tasks.data.records import SourceFile

TABLES = (".csv", ".tsv", ".xlsx", ".xls", ".csv.gz", ".tsv.gz")
DOCUMENTS = (".pdf", ".docx", ".md", ".markdown", ".txt")
SUFFIXES: dict[str, tuple[str, ...]] = {
    "work_orders": TABLES,
    "fault_codes": TABLES,
    "sensor_logs": (".csv", ".tsv", ".csv.gz", ".tsv.gz"),
    "manuals": DOCUMENTS,
    "notes": (".docx", ".md", ".markdown", ".txt"),
    "instructions": (".jsonl", ".json"),
}
MAX_FILE_BYTES = 512 * 1024**2
MAX_UNPACKED_BYTES = 2 * 1024**3
MAX_PDF_PAGES = 5000


def source_files(project_dir: Path, source: AnySource) -> tuple[list[SourceFile], list[str]]:
    """The files of a source, sorted by name, and the names of files that were passed over as not readable.

    Raises `SourceError` when nothing is there, when a file is of a kind that cannot be read, leads out of the
    project, is empty, or is larger than the caps.
    """
    suffixes = SUFFIXES[source.kind]
    found = _matches(project_dir, source.path)
    if not found:
        raise SourceError(
            f"{source.path}: no such file", f"put the file into {project_dir.name}/ or correct path in project.yaml"
        )
    usable = [path for path in found if path.name.lower().endswith(suffixes)]
    skipped = [path.relative_to(project_dir).as_posix() for path in found if path not in usable]
    if not usable:
        raise SourceError(
            f"{source.path}: {source.kind} cannot be read from {', '.join(skipped[:3])}",
            f"files that can be read end in {', '.join(suffixes)}",
        )
    for path in usable:
        check_caps(project_dir, path)
    return [SourceFile(path.relative_to(project_dir).as_posix(), path) for path in usable], skipped


def _matches(project_dir: Path, pattern: str) -> list[Path]:
    direct = project_dir / pattern
    if direct.is_dir():
        found: Sequence[Path] = [p for p in direct.rglob("*") if p.is_file()]
    elif direct.is_file():
        found = [direct]
    else:
        try:
            found = [p for p in project_dir.glob(pattern) if p.is_file()]
        except (ValueError, NotImplementedError):
            found = []
    visible = [p for p in found if not any(part.startswith(".") for part in p.relative_to(project_dir).parts)]
    return sorted(visible, key=lambda p: p.relative_to(project_dir).as_posix())


def check_caps(project_dir: Path, path: Path) -> None:
    """Raise `SourceError` for a file that is empty, too large, unpacks to too much, or leads out of the project."""
    name = path.relative_to(project_dir).as_posix()
    if not path.resolve().is_relative_to(project_dir.resolve()):
        raise SourceError(f"{name} is a link that leads out of the project", "copy the file into the project")
    size = path.stat().st_size
    if size == 0:
        raise SourceError(f"{name} is empty", "provide the file again, or take the source out of project.yaml")
    if size > MAX_FILE_BYTES:
        raise SourceError(f"{name} has {size} bytes, above the cap of {MAX_FILE_BYTES}", "split the file into parts")
    if path.suffix.lower() in (".xlsx", ".docx"):
        _check_archive(path, name)


def _check_archive(path: Path, name: str) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, OSError) as error:
        raise SourceError(
            f"{name} is not a readable {path.suffix} file: {error}", "open it in its program and save it again"
        ) from error
    if unpacked > MAX_UNPACKED_BYTES:
        raise SourceError(
            f"{name} unpacks to {unpacked} bytes, above the cap of {MAX_UNPACKED_BYTES}", "split the file into parts"
        )


def read_bytes(file: SourceFile) -> bytes:
    """The bytes of a file, unpacked when it ends in `.gz`; raises `SourceError` past the cap or if it is broken."""
    if not file.name.lower().endswith(".gz"):
        return file.path.read_bytes()
    try:
        with gzip.open(file.path) as stream:
            data = stream.read(MAX_UNPACKED_BYTES + 1)
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise SourceError(f"{file.name} is not a complete gzip file: {error}", "pack the file again") from error
    if len(data) > MAX_UNPACKED_BYTES:
        raise SourceError(f"{file.name} unpacks to more than {MAX_UNPACKED_BYTES} bytes", "split the file into parts")
    return data
