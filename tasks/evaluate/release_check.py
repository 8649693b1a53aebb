"""Whether a release bundle is what its manifest, attestation and evidence say. Needs nothing but the folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specs.canonical import digest_folder, sha256_file
from specs.results import Artifact

MANIFEST = "manifest.json"
ATTESTATION = "attestation.json"


def files_of(folder: Path) -> list[Artifact]:
    """Every file below a folder, sorted by its relative path."""
    paths = sorted((p.relative_to(folder).as_posix(), p) for p in folder.rglob("*") if p.is_file())
    return [Artifact(path=name, bytes=p.stat().st_size, sha256=sha256_file(p)) for name, p in paths]


def verify_release(folder: Path) -> list[str]:
    """Every problem of a bundle, in words; empty when it is intact.

    1. manifest.json can be read. 2. It lists exactly the files that are there, with their digests; no file is a link.
    3. The attestation is about exactly these files. 4. Its materials name the evidence in the bundle. 5. The weights
    are those that train recorded and evaluate loaded. What is not checked: who made it (nothing is signed), and
    whether the ledger's head is the one named; `gatewright audit verify` does the latter.
    """
    manifest = _read(folder / MANIFEST)
    if manifest is None or not isinstance(manifest.get("files"), list):
        return [f"{MANIFEST} is missing or cannot be read"]
    links = [p.relative_to(folder).as_posix() for p in sorted(folder.rglob("*")) if p.is_symlink()]
    faults = [f"{name} is a link" for name in links]
    faults += _listed(folder, manifest["files"], links)
    faults += _attested(folder, manifest)
    faults += _weights(folder)
    return faults


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _listed(folder: Path, listed: list[Mapping[str, Any]], links: list[str]) -> list[str]:
    there = {f.path: f for f in files_of(folder) if f.path not in links}
    there.pop(MANIFEST, None)
    named = {str(entry["path"]): entry for entry in listed}
    faults = [f"{name} is listed twice" for name in sorted(named) if len(named) != len(listed)][:1]
    faults += [f"{name} is missing" for name in sorted(named.keys() - there.keys() - set(links))]
    faults += [f"{name} is not listed in {MANIFEST}" for name in sorted(there.keys() - named.keys())]
    for name in sorted(named.keys() & there.keys()):
        if there[name].sha256 != named[name]["sha256"] or there[name].bytes != named[name]["bytes"]:
            faults.append(f"{name} has changed")
    return faults


def _attested(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    statement = _read(folder / ATTESTATION)
    if statement is None:
        return [f"{ATTESTATION} is missing or cannot be read"]
    try:
        subject = {s["name"]: s["digest"]["sha256"] for s in statement["subject"]}
        materials = {m["name"]: m["digest"]["sha256"] for m in statement["predicate"]["materials"]}
        listed = {f["path"]: f["sha256"] for f in manifest["files"] if f["path"] != ATTESTATION}
        evidence = {f"evidence/{stage}": sha256 for stage, sha256 in manifest["evidence"].items()}
    except (KeyError, TypeError, AttributeError):
        return [f"{ATTESTATION} or {MANIFEST} lacks a part"]
    faults = [f"{name}: attestation and manifest differ" for name in sorted(_differing(subject, listed))]
    for name, sha256 in sorted(evidence.items()):
        path = folder / f"{name}.json"
        if materials.get(name) != sha256 or not path.is_file() or sha256_file(path) != sha256:
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
    recorded = {a["path"].removeprefix(prefix): a["sha256"] for a in train["artifacts"] if a["path"].startswith(prefix)}
    found = {a.path: a.sha256 for a in files_of(folder / kind)}
    faults = [f"{kind}/{n} is not what train recorded" for n in sorted(_differing(recorded, found))]
    listed = {a["path"]: a["sha256"] for a in evaluate["artifacts"]}
    if listed.get("artifacts/evaluated.json") != sha256_file(folder / "evidence" / "evaluated.json"):
        faults.append("evidence/evaluated.json is not what evaluate recorded")
    if evaluated.get("adapter_sha256") != digest_folder(folder / kind):
        faults.append(f"{kind}/ is not what was evaluated")
    return faults
