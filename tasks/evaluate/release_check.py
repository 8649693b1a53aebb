"""Whether a release bundle is what its manifest, attestation and evidence say. Needs nothing but the folder.

The folder may come from anybody: whatever is malformed in it is a fault, never an exception.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specs.canonical import digest_folder, sha256_file
from specs.results import Artifact
from tasks.evaluate.attestation import STATEMENT, opened_envelope

MANIFEST = "manifest.json"
ATTESTATION = "attestation.json"
ENVELOPE = "attestation.dsse.json"
_MALFORMED = (KeyError, TypeError, AttributeError, ValueError)


@dataclass(frozen=True)
class Check:
    """One thing that was verified: its faults, and what was seen."""

    name: str
    faults: list[str] = field(default_factory=list)
    seen: str = ""


def files_of(folder: Path) -> list[Artifact]:
    """Every file below a folder, sorted by its relative path."""
    paths = sorted((p.relative_to(folder).as_posix(), p) for p in folder.rglob("*") if p.is_file())
    return [Artifact(path=name, bytes=p.stat().st_size, sha256=sha256_file(p)) for name, p in paths]


def verify_release(folder: Path) -> list[str]:
    """Every problem of a bundle, in words; empty when it is intact."""
    return [fault for check in check_release(folder) for fault in check.faults]


def check_release(folder: Path) -> list[Check]:
    """The checks of a bundle in order. After a manifest or statement that cannot be read the rest cannot be checked.

    What is not checked here: whose signature it is (`flows/audit/release.py`), and whether the ledger's head is the
    one named; `gatewright audit verify` does the latter.
    """
    manifest = _read(folder / MANIFEST)
    if manifest is None or not isinstance(manifest.get("files"), list):
        return [Check("manifest.json can be read", [f"{MANIFEST} is missing or cannot be read"])]
    links = [p.relative_to(folder).as_posix() for p in sorted(folder.rglob("*")) if p.is_symlink()]
    faults = [f"{name} is a link" for name in links]
    found = {f.path: f for f in files_of(folder) if f.path not in links}
    return [
        Check("manifest.json can be read", [], f"run {manifest.get('run')} of {manifest.get('project')}"),
        Check(
            "it lists exactly the files that are there, with their digests",
            faults + _listed(found, manifest["files"], links),
            f"{len(found) - 1} files",
        ),
        Check("the attestation is about exactly these files", _attested(folder, manifest), "in-toto Statement v1"),
        Check("its materials name the evidence in the bundle", _materials(folder, manifest), "evidence by SHA-256"),
        Check("the weights are those that train recorded and evaluate loaded", _weights(folder), "weights by SHA-256"),
        _approved(folder),
        Check("the envelope holds the attestation", _enveloped(folder), _envelope_seen(folder)),
    ]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _listed(there: Mapping[str, Artifact], listed: list[Any], links: list[str]) -> list[str]:
    try:
        entries = [Artifact.model_validate(entry) for entry in listed]
    except ValueError:
        return [f"{MANIFEST} lists something that is no file with size and digest"]
    named = {entry.path: entry for entry in entries}
    present = {name: file for name, file in there.items() if name != MANIFEST}
    faults = [f"{MANIFEST} lists a file twice"] if len(named) != len(entries) else []
    faults += [f"{name} is missing" for name in sorted(named.keys() - present.keys() - set(links))]
    faults += [f"{name} is not listed in {MANIFEST}" for name in sorted(present.keys() - named.keys())]
    return faults + [f"{n} has changed" for n in sorted(named.keys() & present.keys()) if named[n] != present[n]]


def _attested(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    statement = _read(folder / ATTESTATION)
    if statement is None:
        return [f"{ATTESTATION} is missing or cannot be read"]
    if statement.get("_type") != STATEMENT:
        return [f"{ATTESTATION} is not an in-toto Statement v1"]
    try:
        subjects = [(s["name"], s["digest"]["sha256"]) for s in statement["subject"]]
        listed = {f["path"]: f["sha256"] for f in manifest["files"] if f["path"] not in (ATTESTATION, ENVELOPE)}
        subject = dict(subjects)
    except _MALFORMED:
        return [f"{ATTESTATION} or {MANIFEST} lacks a part"]
    twice = [f"{ATTESTATION} names a file twice"] if len(subject) != len(subjects) else []
    return twice + [f"{name}: attestation and manifest differ" for name in sorted(_differing(subject, listed))]


def _materials(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    statement = _read(folder / ATTESTATION) or {}
    try:
        materials = {m["name"]: m["digest"]["sha256"] for m in statement["predicate"]["materials"]}
        evidence = {f"evidence/{stage}": sha256 for stage, sha256 in sorted(manifest["evidence"].items())}
    except _MALFORMED:
        return [f"{ATTESTATION} or {MANIFEST} lacks a part"]
    faults = [] if evidence else [f"{MANIFEST} names no evidence"]
    for name, sha256 in evidence.items():
        path = folder / f"{name}.json"
        inside = path.resolve().is_relative_to(folder.resolve())
        if not inside or materials.get(name) != sha256 or not path.is_file() or sha256_file(path) != sha256:
            faults.append(f"{name}.json is not the evidence that the attestation names")
    return faults


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def _weights(folder: Path) -> list[str]:
    """From the weights to the evidence of train, and over evaluated.json to the evidence of evaluate."""
    kind = next((k for k in ("adapter", "model") if (folder / k).is_dir()), None)
    if kind is None:
        return ["there is neither adapter/ nor model/"]
    documents = {n: _read(folder / "evidence" / f"{n}.json") for n in ("train", "evaluate", "evaluated")}
    train, evaluate, evaluated = documents["train"], documents["evaluate"], documents["evaluated"]
    if train is None or evaluate is None or evaluated is None:
        return ["evidence/ is incomplete"]
    prefix = f"artifacts/{kind}/"
    try:
        artifacts = {a["path"]: a["sha256"] for a in train["artifacts"]}
        listed = {a["path"]: a["sha256"] for a in evaluate["artifacts"]}
        recorded = {path.removeprefix(prefix): sha for path, sha in artifacts.items() if path.startswith(prefix)}
    except _MALFORMED:
        return ["the evidence of train or evaluate lists no artifacts that can be read"]
    found = {a.path: a.sha256 for a in files_of(folder / kind)}
    faults = [f"{kind}/{n} is not what train recorded" for n in sorted(_differing(recorded, found))]
    if listed.get("artifacts/evaluated.json") != sha256_file(folder / "evidence" / "evaluated.json"):
        faults.append("evidence/evaluated.json is not what evaluate recorded")
    if evaluated.get("adapter_sha256") != digest_folder(folder / kind):
        faults.append(f"{kind}/ is not what was evaluated")
    return faults


def _approved(folder: Path) -> Check:
    """The attestation names an approval of the release gate. That it was given, only the run's history shows."""
    name = "a person approved the release, as the attestation says"
    statement = _read(folder / ATTESTATION) or {}
    try:
        approvals = statement["predicate"]["approvals"]
        release = [a for a in approvals if a["gate"] == "release"]
        said = [f"{a['actor']} ({a['authentication']})" for a in release if a["choice"] == "approve"]
        last = release[-1]["choice"] if release else None
    except _MALFORMED:
        return Check(name, [f"{ATTESTATION} names no approvals that can be read"])
    faults = [] if last == "approve" else ["the last decision that it names on the release gate is no approval"]
    return Check(name, faults, f"{', '.join(said)}; `gatewright audit verify` shows the decision itself")


def _enveloped(folder: Path) -> list[str]:
    path = folder / ENVELOPE
    if not path.exists():
        return []
    document = _read(path)
    try:
        payload, _ = opened_envelope(document)
    except ValueError as error:
        return [f"{ENVELOPE}: {error}"]
    attestation = folder / ATTESTATION
    if not attestation.is_file() or attestation.read_bytes() != payload:
        return [f"{ENVELOPE} holds another statement than {ATTESTATION}"]
    return []


def _envelope_seen(folder: Path) -> str:
    return "DSSE v1" if (folder / ENVELOPE).exists() else "there is none: the attestation is not signed"
