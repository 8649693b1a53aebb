"""Writing a bundle: the history of a run in one file that can be verified without the project or its database.

events.jsonl           one object a line: the hash, and the hashed bytes as text
upkeep.jsonl           the same of the project's own chain, where it has entries: removals, deletions, restores
*.json, gates/, proposals/, <stage>/<attempt>/    documents, reports and plots as the run has them
keys.allowed_signers   the public keys of the policy, in the form that `ssh-keygen -Y verify` reads
objects/<sha256>       on request: artifacts, by the digest that the evidence names
bundle.json            what is in the file, with sizes and digests, and how much was left out
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.audit.history import stored_rows
from flows.gatefiles import attempt_folder
from flows.ledger import Ledger
from flows.ledger.chain import Stored
from flows.ledger.upkeep import stored_upkeep
from flows.signing import NAMESPACE
from flows.workspace import frozen_graph
from specs.canonical import canonical_bytes, sha256_file
from specs.files import storage_errors
from specs.policy import read_frozen
from specs.results import Evidence

FORMAT = "gatewright-bundle"
VERSION = 2
EVENTS = "events.jsonl"
UPKEEP = "upkeep.jsonl"
KEYS = "keys.allowed_signers"
LIST = "bundle.json"
OBJECTS = "objects/"
VERBATIM = ("artifacts/quarantine.parquet", "artifacts/paragraphs.parquet", "artifacts/review_pairs.parquet")
"""Artifacts of the data stage that repeat raw data word for word. Bundles leave them out, whatever is asked for."""

_ATTEMPT = "[0-9][0-9]-*/[0-9][0-9][0-9]"
_DOCUMENTS = (
    "*.json",
    "gates/*/*/*.json",
    "gates/*/*/amended/*.json",
    "specs/*.json",
    "proposals/*.json",
    "proposals/*.yaml",
    f"{_ATTEMPT}/evidence.json",
    f"{_ATTEMPT}/gate.json",
    f"{_ATTEMPT}/proposal.json",
    f"{_ATTEMPT}/report.md",
    f"{_ATTEMPT}/report.html",
    f"{_ATTEMPT}/plots/*",
    "release/*.json",
    "release/model_card.md",
    "release/evidence/*.json",
)
_PIECE = 1 << 20
_LARGE = 1 << 31


@dataclass
class Contents:
    """What went into a bundle, and the number of files of each sort that did not."""

    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)


def export(
    ledger: Ledger,
    run: str,
    run_dir: Path,
    path: Path,
    *,
    artifacts: bool = False,
    dangerously_raw_data_of: Path | None = None,
) -> Contents:
    """Write the bundle of a run. Equal histories give equal bytes.

    `artifacts` adds artifacts and transcripts. `dangerously_raw_data_of` names the project whose raw files and
    quarantined rows go in too; without it they never do.
    """
    part = path.with_name(path.name + ".part")  # a bundle that a full disk cut never looks like one
    contents = Contents()
    upkeep = stored_upkeep(ledger, ledger.run(run).project)
    try:
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as bundle:
                count, head = _write_events(bundle, contents, stored_rows(ledger, run))
                if upkeep:
                    _write(bundle, contents, UPKEEP, (_line(row) for row in upkeep))
                _write_files(bundle, contents, run_dir, artifacts, dangerously_raw_data_of)
                listed = {
                    "format": FORMAT,
                    "version": VERSION,
                    "run": run,
                    "events": count,
                    "head": head or None,
                    "files": contents.entries,
                    "left_out": dict(sorted(contents.left_out.items())),
                }
                _write(bundle, Contents(), LIST, [canonical_bytes(listed)])
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return contents


def _write_events(bundle: zipfile.ZipFile, contents: Contents, rows: Iterator[Stored]) -> tuple[int, str]:
    """Write events.jsonl; returns the number of events and the hash of the last one."""
    count, head = 0, ""

    def lines() -> Iterator[bytes]:
        nonlocal count, head
        for row in rows:
            count, head = count + 1, row.hash
            yield _line(row)

    _write(bundle, contents, EVENTS, lines())
    return count, head


def _line(row: Stored) -> bytes:
    try:
        fields = {"body": row.body.decode(), "hash": row.hash}
    except UnicodeDecodeError:  # bytes that somebody put there; the audit of the bundle shall see them as they are
        fields = {"body_base64": base64.b64encode(row.body).decode(), "hash": row.hash}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode() + b"\n"


def _write_files(
    bundle: zipfile.ZipFile, contents: Contents, run_dir: Path, artifacts: bool, raw_data_of: Path | None
) -> None:
    patterns = (*_DOCUMENTS, "transcripts/*.json") if artifacts else _DOCUMENTS
    if not artifacts:
        contents.left_out["transcripts"] = sum(1 for _ in run_dir.glob("transcripts/*.json"))
    files = {p for pattern in patterns for p in run_dir.glob(pattern) if p.is_file() and not p.is_symlink()}
    for file in sorted(files, key=lambda p: p.relative_to(run_dir).as_posix()):
        _write(bundle, contents, file.relative_to(run_dir).as_posix(), _pieces(file))
    keys = _allowed_signers(run_dir)
    if keys:
        _write(bundle, contents, KEYS, [keys])
    objects = _objects(run_dir, contents, artifacts, raw_data_of)
    for digest, file in sorted(objects.items()):
        _write(bundle, contents, OBJECTS + digest, _pieces(file), zipfile.ZIP_STORED, file.stat().st_size)
    contents.left_out = +contents.left_out


def _allowed_signers(run_dir: Path) -> bytes:
    """The keys of the frozen policy as `ssh-keygen -Y verify -f` reads them, for whoever verifies by hand."""
    try:
        policy = read_frozen((run_dir / "policy.json").read_bytes())
    except (OSError, ValueError):
        return b""
    lines = [
        f'"{approver.id}" namespaces="{NAMESPACE}" {key}\n'
        for approver in policy.approvers
        for key in approver.keys
        if not set(approver.id) & set('"*?!,')  # what such a list would read as a pattern
    ]
    return "".join(lines).encode()


def _objects(run_dir: Path, contents: Contents, artifacts: bool, raw_data_of: Path | None) -> dict[str, Path]:
    """The digest that a document names to the file that goes in under it."""
    found: dict[str, Path] = {}
    for stage in frozen_graph(run_dir).stages:
        for folder in sorted(attempt_folder(run_dir, stage, 1).parent.glob("[0-9][0-9][0-9]")):
            evidence = _evidence(folder)
            for artifact in evidence.artifacts if evidence else ():
                copied = artifact.path.startswith("artifacts/project_files/")
                verbatim = copied or (stage == "data" and artifact.path in VERBATIM)
                if not artifact.path.startswith("artifacts/"):
                    continue  # plots are documents
                if raw_data_of is not None if verbatim else artifacts:
                    _choose(found, contents, folder, artifact.path, artifact.sha256)
                else:
                    contents.left_out["raw data and quarantine" if verbatim else "artifacts"] += 1
            if evidence and stage == "data":
                _raw(found, contents, evidence, raw_data_of)
    for listed in _released(run_dir):
        name = str(listed["path"])
        if f"release/{name}" in contents.entries:
            continue  # it is a document
        if artifacts:
            _choose(found, contents, run_dir / "release", name, str(listed["sha256"]))
        else:
            contents.left_out["released files"] += 1
    return found


def _choose(found: dict[str, Path], contents: Contents, folder: Path, name: str, sha256: str) -> None:
    """Take a file under the digest it should have. A changed one wins over its twin: the audit shall see it."""
    path = folder / name
    inside = path.resolve().is_relative_to(folder.resolve())
    if not inside or path.is_symlink() or not path.is_file():
        contents.left_out["files that are missing"] += 1
    elif sha256 not in found or sha256_file(path) != sha256:
        found[sha256] = path


def _raw(found: dict[str, Path], contents: Contents, evidence: Evidence, project_dir: Path | None) -> None:
    for name, sha256 in sorted(evidence.inputs.items()):
        kind, _, path = name.partition(":")
        if kind not in ("raw", "general"):
            continue
        if project_dir is None:
            contents.left_out["raw data and quarantine"] += 1
        else:
            _choose(found, contents, project_dir, path, sha256)


def _evidence(folder: Path) -> Evidence | None:
    try:
        return Evidence.model_validate_json((folder / "evidence.json").read_bytes())
    except (OSError, ValueError):
        return None


def _released(run_dir: Path) -> list[Mapping[str, Any]]:
    try:
        files = json.loads((run_dir / "release" / "manifest.json").read_bytes())["files"]
        return [f for f in files if isinstance(f["path"], str) and isinstance(f["sha256"], str)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while piece := stream.read(_PIECE):
            yield piece


def _write(
    bundle: zipfile.ZipFile,
    contents: Contents,
    name: str,
    pieces: Iterable[bytes],
    compression: int = zipfile.ZIP_DEFLATED,
    expected_size: int = 0,
) -> None:
    """One entry, with a fixed time and mode so that equal content gives equal bytes."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = compression
    info.external_attr = 0o100644 << 16
    found, size = hashlib.sha256(), 0
    large = name == EVENTS or expected_size > _LARGE
    with bundle.open(info, "w", force_zip64=large) as entry:
        for piece in pieces:
            entry.write(piece)
            found.update(piece)
            size += len(piece)
    contents.entries[name] = {"bytes": size, "sha256": found.hexdigest()}
