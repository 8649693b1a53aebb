"""Taking the history elsewhere: the head as an anchor, the events and small documents as a bundle."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

from pydantic import AwareDatetime, Field, ValidationError

from flows.ledger import Ledger
from specs.base import Sha256, Strict
from specs.canonical import canonical_bytes
from specs.errors import InputError
from specs.files import storage_errors, write_json

_DOCUMENTS = (
    "*.json",
    "gates/**/*.json",
    "proposals/*.json",
    "[0-9]*/*/*.json",
    "[0-9]*/*/report.md",
    "release/*.json",
)


class Anchor(Strict):
    """The head of a run at a moment. Kept elsewhere, it shows that nothing before it was changed or cut."""

    format: str = "gatewright-anchor"
    version: int = 1
    run: str
    sequence: int = Field(ge=1)
    head: Sha256
    at: AwareDatetime


def anchor(ledger: Ledger, run: str, path: Path) -> Anchor:
    """Write the head of a run to a file for keeping elsewhere. It is not signed: keep it where others cannot write."""
    last = ledger.events(run)[-1]
    found = Anchor(run=run, sequence=last.sequence, head=last.hash, at=ledger.now())
    write_json(path, found)
    return found


def read_anchor(path: Path) -> Anchor:
    """The anchor in a file. Raises `InputError` when there is none."""
    try:
        return Anchor.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"cannot read the anchor {path}: {error.strerror}", "write one: gatewright audit anchor FILE RUN"
        ) from error
    except ValidationError as error:
        raise InputError(f"{path} is not an anchor", "`gatewright audit anchor FILE RUN` writes one") from error


def export(ledger: Ledger, run: str, run_dir: Path, path: Path) -> list[str]:
    """Write a ZIP with the events (one JSON object a line: hash, and the hashed bytes as text) and the documents.

    Artifacts, checkpoints and raw data stay out; their digests are in the evidence. Equal histories give equal bytes.
    """
    lines = [canonical_bytes({"hash": row.hash, "body": row.body.decode()}) for row in ledger.stored(run)]
    files = sorted({p for pattern in _DOCUMENTS for p in run_dir.glob(pattern) if p.is_file() and not p.is_symlink()})
    names = ["events.jsonl"]
    part = path.with_name(path.name + ".part")  # a bundle that a full disk cut never looks like one
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as bundle:
            bundle.writestr(_entry("events.jsonl"), b"\n".join(lines) + b"\n")
            for file in files:
                name = file.relative_to(run_dir).as_posix()
                bundle.writestr(_entry(name), file.read_bytes())
                names.append(name)
            listed = json.dumps({"format": "gatewright-bundle", "version": 1, "run": run, "files": names}, indent=1)
            bundle.writestr(_entry("bundle.json"), listed)
        os.replace(part, path)
    return names


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
