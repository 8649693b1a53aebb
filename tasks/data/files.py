"""From a source of the spec to its files: folders and globs resolved, caps checked, before anything is parsed."""

from __future__ import annotations

import gzip
import unicodedata
import zipfile
import zlib
from functools import partial
from pathlib import Path

from specs.errors import SourceError
from specs.sources import AnySource
from tasks.data.records import SourceFile

_TEXT_TABLES = (".csv", ".tsv", ".json", ".jsonl")
_TEXT_DOCUMENTS = (".html", ".htm", ".md", ".markdown", ".txt")


def _packed(*endings: str) -> tuple[str, ...]:
    """Endings of text formats, also packed by gzip."""
    return (*endings, *(f"{ending}.gz" for ending in endings))


SUFFIXES: dict[str, tuple[str, ...]] = {
    "work_orders": (*_packed(*_TEXT_TABLES), ".xlsx", ".xls", ".parquet", ".pdf"),
    "fault_codes": (*_packed(*_TEXT_TABLES), ".xlsx", ".xls", ".parquet", ".pdf"),
    "sensor_logs": (*_packed(".csv", ".tsv", ".txt"), ".parquet"),
    "manuals": (".pdf", ".docx", *_packed(*_TEXT_DOCUMENTS)),
    "notes": (".docx", *_packed(*_TEXT_DOCUMENTS)),
    "instructions": (*_packed(".jsonl", ".json"), ".parquet"),
}
_INSTEAD = {
    ".zip": "unpack it and name the files inside",
    ".tar": "unpack it and name the files inside",
    ".tar.gz": "unpack it and name the files inside",
    ".tgz": "unpack it and name the files inside",
    ".7z": "unpack it and name the files inside",
    ".rar": "unpack it and name the files inside",
    ".doc": "save it as DOCX",
    ".wps": "save it as DOCX",
    ".et": "save it as XLSX",
    ".ods": "save it as XLSX",
    ".xlsb": "save it as XLSX",
    ".xlsm": "save it as XLSX, without macros",
    ".rtf": "save it as DOCX",
    ".mht": "save it as HTML",
    ".chm": "unpack its HTML pages",
}
OWN_FOLDERS = ("runs", "ungated", ".gatewright")
"""What Gatewright writes at the top of a project: its own output is never a source."""
MAX_FILE_BYTES = 512 * 1024**2
MAX_UNPACKED_BYTES = 2 * 1024**3
MAX_PDF_PAGES = 5000
FREE_BYTES = 64 * 1024**2
MAX_RATIO = 200
"""A file that unpacks to more than FREE_BYTES and MAX_RATIO times its size is a bomb: text packs 3 to 50 times."""
_CHUNK = 1 << 20


def source_files(project_dir: Path, source: AnySource) -> tuple[list[SourceFile], list[str]]:
    """The files of a source, sorted by name, and the names of files that were passed over as not readable.

    Raises `SourceError` when nothing is there, when a file is of a kind that cannot be read, leads out of the
    project, is empty, or is larger than the caps.
    """
    suffixes = SUFFIXES[source.kind]
    found = matching_files(project_dir, source.path)
    if not found:
        raise SourceError(
            f"{source.path}: no such file (hidden files and {', '.join(OWN_FOLDERS)} are never read)",
            f"put the file into {project_dir.name}/ or correct path in project.yaml",
        )
    usable = [path for path in found if path.name.lower().endswith(suffixes)]
    skipped = [source_name(project_dir, path) for path in found if path not in usable]
    if not usable:
        raise SourceError(
            f"{source.path}: {source.kind} cannot be read from {', '.join(skipped[:3])}",
            f"{_instead(skipped[0])}files that can be read end in {', '.join(suffixes)}; "
            "a text file of another ending can be renamed",
        )
    for path in usable:
        check_caps(project_dir, path)
    return [SourceFile(source_name(project_dir, path), path) for path in usable], skipped


def base_name(name: str) -> str:
    """The file's name in lower case, without `.gz`: what its ending says of its format."""
    return name.lower().removesuffix(".gz")


def _instead(name: str) -> str:
    """What to do with a file of a kind that is not read, where that is known."""
    found = [way for ending, way in _INSTEAD.items() if name.lower().endswith(ending)]
    return f"{found[0]}; " if found else ""


def source_name(project_dir: Path, path: Path) -> str:
    """The path in the project, NFC: file systems differ in the form they keep, artifacts must not."""
    return unicodedata.normalize("NFC", path.relative_to(project_dir).as_posix())


def matching_files(project_dir: Path, pattern: str) -> list[Path]:
    """The files a source's path names: a file, every file of a folder, or a glob; sorted by their path.

    Hidden files, lock files of office programs and Gatewright's own folders are no sources. Raises `SourceError` for
    a path that the file system refuses and for a file name that is not UTF-8.
    """
    direct = project_dir / pattern
    try:
        if direct.is_file():
            found = [direct]
        else:
            candidates = direct.rglob("*") if direct.is_dir() else project_dir.glob(pattern)
            found = [p for p in candidates if p.is_file()]
    except (ValueError, NotImplementedError, IndexError):
        found = []
    except OSError as error:
        raise SourceError(
            f"{pattern[:80]}: this path cannot be used: {error.strerror}", "correct path in project.yaml"
        ) from error
    found = [p for p in found if _is_source(p.relative_to(project_dir))]
    for path in found:
        if not encodable(str(path.relative_to(project_dir))):
            raise SourceError(f"{path.name!a}: the name of this file is not UTF-8", "rename the file")
    return sorted(found, key=lambda p: p.relative_to(project_dir).as_posix())


def _is_source(path: Path) -> bool:
    own = len(path.parts) > 1 and path.parts[0] in OWN_FOLDERS
    return not own and not any(part.startswith((".", "~$")) for part in path.parts)


def encodable(text: str) -> bool:
    """Whether text can be written as UTF-8: it holds no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_caps(project_dir: Path, path: Path) -> None:
    """Raise `SourceError` for a file that is empty, too large, unpacks to too much, or leads out of the project."""
    name = source_name(project_dir, path)
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
    """Raise `SourceError` unless every member of an office file is what it says: name, size, and plain XML."""
    limit = _unpacked_limit(path)
    unpacked = 0
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.startswith(("/", "\\")) or ".." in member.filename.replace("\\", "/").split("/"):
                    raise SourceError(
                        f"{name} holds a member that leads out of it: {member.filename!r}",
                        "do not use a file that was made to do harm; save the document again from its program",
                    )
                with archive.open(member) as stream:
                    for number, chunk in enumerate(iter(partial(stream.read, _CHUNK), b"")):
                        unpacked += len(chunk)
                        if unpacked > limit:
                            raise SourceError(f"{name} unpacks to more than {limit} bytes", "split the file into parts")
                        if number == 0:
                            _refuse_declarations(chunk, name, member.filename)
    except (zipfile.BadZipFile, OSError, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise SourceError(
            f"{name} is not a readable {path.suffix[1:].upper()} file: {error}",
            "open it in its program and save it again",
        ) from error


def _refuse_declarations(head: bytes, name: str, member: str) -> None:
    """XML of office programs has no document type: entities there are made to do harm."""
    plain = head.replace(b"\x00", b"")
    if member.endswith((".xml", ".rels")) and (b"<!DOCTYPE" in plain or b"<!ENTITY" in plain):
        raise SourceError(
            f"{name} declares XML entities in {member}",
            "do not use a file that was made to do harm; save the document again from its program",
        )


def _unpacked_limit(path: Path) -> int:
    return min(MAX_UNPACKED_BYTES, max(FREE_BYTES, MAX_RATIO * path.stat().st_size))


def read_bytes(file: SourceFile) -> bytes:
    """The bytes of a file, unpacked when it ends in `.gz`. Raises `SourceError` past the cap or if it is broken."""
    packed = file.name.lower().endswith(".gz")
    try:
        if not packed:
            return file.path.read_bytes()
        limit, data = _unpacked_limit(file.path), bytearray()
        with gzip.open(file.path) as stream:
            while chunk := stream.read(_CHUNK):
                data += chunk
                if len(data) > limit:
                    raise SourceError(f"{file.name} unpacks to more than {limit} bytes", "split the file into parts")
        return bytes(data)
    except PermissionError as error:
        raise SourceError(
            f"{file.name} cannot be read: {error.strerror}", "give your account the right to read the file"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        what, way_out = ("is not a complete gzip file", "pack the file again") if packed else ("cannot be read", "")
        raise SourceError(f"{file.name} {what}: {error}", way_out or "copy the file into the project again") from error
