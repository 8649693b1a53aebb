"""What a gate shows, on disk: proposals by their digest, and one folder per round with `gate.json`.

`<run>/proposals/<sha256>.json`, `<run>/gates/<nn>-<gate>/<round>/{gate.json, proposal.json}`. Files first, then the
event: a gate that is open in the ledger has its files. A gate that is not open yet may be written again.
What a gate shows after a person's edit lies beside, under its digest: `<round>/amended/<sha256>.json`.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from flows.workspace import numbered
from specs.canonical import canonical_bytes, sha256_bytes, sha256_file
from specs.decisions import FinishedDocument, GateDocument
from specs.errors import InputError
from specs.files import write_bytes
from specs.proposals import Proposal

RESTORE = "restore it from a backup, or end the run with `gatewright reject`"
"""The way out where something that a gate showed is gone."""


def gate_folder(run_dir: Path, gate: str, round: int) -> Path:
    """Where one round of a gate lies."""
    return run_dir / "gates" / numbered(run_dir, gate) / f"{round:03d}"


def attempt_folder(run_dir: Path, stage: str, attempt: int) -> Path:
    """Where a published attempt lies."""
    return run_dir / numbered(run_dir, stage) / f"{attempt:03d}"


def proposal_path(run_dir: Path, digest: str) -> Path:
    """Where a proposal lies, by the digest of its bytes."""
    return run_dir / "proposals" / f"{digest}.json"


def spec_path(run_dir: Path, digest: str) -> Path:
    """Where a spec lies that a gate showed: `spec.json`, or among those that were taken in or replaced since."""
    kept = run_dir / "specs" / f"{digest}.json"
    return kept if kept.is_file() else run_dir / "spec.json"


def sheet_path(run_dir: Path, digest: str) -> Path:
    """Where the task_sheet.yaml lies that a proposal was made with, by the digest of its bytes."""
    return run_dir / "proposals" / f"{digest}.yaml"


def store_proposal(run_dir: Path, proposal: Proposal) -> str:
    """Write a proposal under the digest of its canonical bytes, which is returned. Equal ones are written once."""
    data = canonical_bytes(proposal)
    digest = sha256_bytes(data)
    path = proposal_path(run_dir, digest)
    if not (path.is_file() and path.read_bytes() == data):
        write_bytes(path, data)
    return digest


def load_proposal(run_dir: Path, digest: str) -> Proposal:
    """The proposal of a digest. Raises `InputError` when its file is gone or was changed."""
    path = proposal_path(run_dir, digest)
    if not path.is_file():
        raise InputError(f"{path} is missing", RESTORE)
    data = path.read_bytes()
    if sha256_bytes(data) != digest:
        raise InputError(f"{path} was changed: it no longer hashes to its name", RESTORE)
    return Proposal.model_validate_json(data)


def write_gate(run_dir: Path, document: GateDocument) -> str:
    """Write the files of a round and return the digest of the bytes of `gate.json`. Its proposal must be stored."""
    folder = gate_folder(run_dir, document.gate, document.round)
    load_proposal(run_dir, document.proposal)
    # The bytes as they were stored: written again by a later version they would be others.
    write_bytes(folder / "proposal.json", proposal_path(run_dir, document.proposal).read_bytes())
    data = canonical_bytes(document)
    write_bytes(folder / "gate.json", data)
    return sha256_bytes(data)


def write_amended(run_dir: Path, document: GateDocument) -> str:
    """Write what a gate shows after an edit, and return its digest. The edited proposal must be stored."""
    load_proposal(run_dir, document.proposal)
    data = canonical_bytes(document)
    digest = sha256_bytes(data)
    write_bytes(gate_path(run_dir, document.gate, document.round, digest), data)
    return digest


def gate_path(run_dir: Path, gate: str, round: int, amended: str = "") -> Path:
    """Where `gate.json` of a round lies; `amended` is the digest of what it shows after an edit."""
    folder = gate_folder(run_dir, gate, round)
    return folder / "amended" / f"{amended}.json" if amended else folder / "gate.json"


def gate_bytes(run_dir: Path, gate: str, round: int, amended: str = "") -> bytes:
    """The stored bytes of `gate.json`. Raises `InputError` when it is gone."""
    path = gate_path(run_dir, gate, round, amended)
    if not path.is_file():
        raise InputError(f"{path} is missing", RESTORE)
    return path.read_bytes()


def read_gate(run_dir: Path, gate: str, round: int, amended: str = "") -> GateDocument:
    """The document in `gate.json`. Raises `InputError` when it is gone or is none."""
    try:
        return GateDocument.model_validate_json(gate_bytes(run_dir, gate, round, amended))
    except ValidationError as error:
        path = gate_path(run_dir, gate, round, amended)
        raise InputError(f"{path} was changed: it is no gate document", RESTORE) from error


def shown(run_dir: Path, document: GateDocument) -> dict[str, str]:
    """Every file that a gate document vouches for: path relative to the run's folder (POSIX) to its digest."""
    folder = gate_folder(run_dir, document.gate, document.round).relative_to(run_dir).as_posix()
    files = {
        proposal_path(run_dir, document.proposal).relative_to(run_dir).as_posix(): document.proposal,
        spec_path(run_dir, document.spec).relative_to(run_dir).as_posix(): document.spec,
        "policy.json": document.policy,
    }
    if document.task_sheet is not None:
        files[sheet_path(run_dir, document.task_sheet).relative_to(run_dir).as_posix()] = document.task_sheet
    if document.amends is None:
        files[f"{folder}/proposal.json"] = document.proposal
    if document.finished_stage is not None and document.finished_attempt is not None:
        attempt = attempt_folder(run_dir, document.finished_stage, document.finished_attempt)
        files |= _of_attempt(run_dir, attempt, document)
    for other in document.also:
        files |= _of_attempt(run_dir, attempt_folder(run_dir, other.stage, other.attempt), other)
    return files


def _of_attempt(run_dir: Path, attempt: Path, said: GateDocument | FinishedDocument) -> dict[str, str]:
    below = attempt.relative_to(run_dir).as_posix()
    named = {"evidence.json": said.evidence, "report.md": said.report, "report.html": said.report_html}
    files = {f"{below}/{name}": digest for name, digest in named.items() if digest}
    return files | {f"{below}/plots/{name}": digest for name, digest in said.plots.items()}


def changed_files(run_dir: Path, gate: str, round: int, digest: str, amended: bool = False) -> list[str]:
    """Files of a round that are not what was shown: `gate.json` itself, or what it vouches for. Sorted.

    `amended` says that `digest` is of what the gate shows after an edit.
    """
    which = digest if amended else ""
    path = gate_path(run_dir, gate, round, which)
    if not path.is_file() or sha256_file(path) != digest:
        return [path.relative_to(run_dir).as_posix()]
    expected = shown(run_dir, read_gate(run_dir, gate, round, which))
    return sorted(
        name for name, sha in expected.items() if not (run_dir / name).is_file() or sha256_file(run_dir / name) != sha
    )
