"""The release bundle: trained weights, card, evidence, attestation and manifest, published by one rename.

adapter/ or model/   the trained weights, byte for byte those that were evaluated
merged/              on request: the base model with the adapter merged into its weights
evidence/            evidence.json of data, train and evaluate, and evaluated.json
task_sheet.json      every number that the task sheet expected, beside what came
model_card.md        attestation.json        manifest.json (every other file with its SHA-256)
attestation.dsse.json    with a key: the attestation in a signed envelope
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from specs.base import Sha256
from specs.canonical import canonical_bytes, digest_folder, sha256_bytes, sha256_file
from specs.errors import InputError, Refused, VerificationFailed
from specs.files import publish_folder, storage_errors, write_bytes, write_json
from specs.results import Artifact, Evidence
from specs.stages import Progress, Quiet
from tasks.evaluate.attestation import Signer, envelope, statement
from tasks.evaluate.merge_worker import MergeJob
from tasks.evaluate.model_card import model_card
from tasks.evaluate.release_check import ATTESTATION, ENVELOPE, MANIFEST, files_of, verify_release
from tasks.evaluate.release_facts import ReleaseFacts
from tasks.workers import run_worker

SHEET = "task_sheet.json"


def build_release(
    target: Path, facts: ReleaseFacts, progress: Progress | None = None, signer: Signer | None = None
) -> Sha256:
    """Build the bundle and publish it as `target`; returns the SHA-256 of its manifest.json. `signer` attests it.

    A bundle of the same attempts that is already there and intact is kept, so that a crash after the rename changes
    nothing. Raises `VerificationFailed` when weights or evidence are not what was recorded, `Refused` for an
    attempt that ran outside a run's gates.
    """
    kind = _trained_kind(facts.train)
    evidence = {stage: _evidence(stage, folder) for stage, folder in facts.attempts.items()}
    trained_sha256 = _require_evaluated(facts, evidence, kind)
    if target.exists():
        return _adopt(target, facts)
    partial = target.with_name(target.name + ".partial")
    with storage_errors(partial):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        shutil.copytree(facts.train / "artifacts" / kind, partial / kind)
    if digest_folder(partial / kind) != trained_sha256:
        raise VerificationFailed(f"the copy of {kind}/ differs from what was evaluated", "check the disk; try again")
    _copy_evidence(facts, partial)
    if facts.merged and kind == "adapter":
        _merge(facts, partial, progress or Quiet())
    by = signer.fingerprint if signer else ""
    write_bytes(partial / "model_card.md", model_card(facts, evidence, kind, by).encode())
    if facts.sheet:
        write_json(partial / SHEET, {"version": 1, "rows": [row.model_dump(mode="json") for row in facts.sheet]})
    settings = json.loads((facts.train / "artifacts" / "settings.json").read_bytes())
    attested = statement(facts, files_of(partial), _materials(facts, partial), settings, by)
    stated = write_json(partial / ATTESTATION, attested)
    if signer is not None:
        write_json(partial / ENVELOPE, envelope(stated, signer))
    manifest = write_json(partial / MANIFEST, _manifest(facts, partial))
    faults = verify_release(partial)
    if faults:
        raise VerificationFailed(f"the finished bundle does not verify: {faults[0]}", "check the disk; try again")
    publish_folder(partial, target)
    return sha256_bytes(manifest)


def _trained_kind(train: Path) -> str:
    for kind in ("adapter", "model"):
        if (train / "artifacts" / kind).is_dir():
            return kind
    raise InputError(f"{train} holds no trained weights", "run the train stage first")


def _evidence(stage: str, folder: Path) -> Evidence:
    path = folder / "evidence.json"
    if not path.is_file():
        raise InputError(f"{folder} has no evidence.json", f"the {stage} stage has not finished")
    found = Evidence.model_validate_json(path.read_bytes())
    if not found.gated:
        raise Refused(f"{folder} ran outside a run's gates", "only stages that a person approved can be released")
    return found


def _require_evaluated(facts: ReleaseFacts, evidence: dict[str, Evidence], kind: str) -> Sha256:
    """Digest of the trained weights, which must be those recorded by train and those that evaluate loaded."""
    trained = facts.train / "artifacts" / kind
    recorded = {a.path: a.sha256 for a in evidence["train"].artifacts if a.path.startswith(f"artifacts/{kind}/")}
    found = {f"artifacts/{kind}/{a.path}": a.sha256 for a in files_of(trained)}
    if recorded != found:
        odd = sorted(recorded.items() ^ found.items())[0][0]
        raise VerificationFailed(f"{odd} is not what train recorded", "restore the attempt, or train again")
    evaluated_file = facts.evaluate / "artifacts" / "evaluated.json"
    listed = {a.path: a.sha256 for a in evidence["evaluate"].artifacts}
    if listed.get("artifacts/evaluated.json") != sha256_file(evaluated_file):
        raise VerificationFailed(f"{evaluated_file} is not what evaluate recorded", "evaluate again")
    evaluated = json.loads(evaluated_file.read_bytes())
    digest = digest_folder(trained)
    if evaluated["adapter_sha256"] != digest or evaluated["base_model_sha256"] != facts.base_model_sha256:
        raise VerificationFailed("other weights were evaluated than are to be released", "evaluate this training")
    return digest


def _copy_evidence(facts: ReleaseFacts, partial: Path) -> None:
    with storage_errors(partial):
        (partial / "evidence").mkdir()
        for stage, folder in facts.attempts.items():
            shutil.copyfile(folder / "evidence.json", partial / "evidence" / f"{stage}.json")
        shutil.copyfile(facts.evaluate / "artifacts" / "evaluated.json", partial / "evidence" / "evaluated.json")


def _merge(facts: ReleaseFacts, partial: Path, progress: Progress) -> None:
    if facts.base_model_folder is None:
        raise InputError("a merged model needs the base model's folder", "release without merged_model")
    evaluated = json.loads((facts.evaluate / "artifacts" / "evaluated.json").read_bytes())
    job = MergeJob(
        base_model=facts.base_model_folder,
        trained=facts.train / "artifacts",
        weights=evaluated["weights"],
        out=partial / "merged",
    )
    place = partial.with_name(partial.name + "-merge")  # job and log are no part of the bundle
    write_bytes(place / "job.json", canonical_bytes(job))
    run_worker("tasks.evaluate.merge_worker", place / "job.json", place / "log", progress, threads=facts.threads)
    shutil.rmtree(place, ignore_errors=True)


def _materials(facts: ReleaseFacts, partial: Path) -> dict[str, str]:
    """Name to SHA-256 of everything the release was made from."""
    evidence = {f"evidence/{stage}": sha256_file(partial / "evidence" / f"{stage}.json") for stage in facts.attempts}
    return {
        "base_model": facts.base_model_sha256,
        **({"parent_adapter": facts.parent.weights_sha256} if facts.parent else {}),
        "samples.parquet": sha256_file(facts.samples),
        **evidence,
    }


def _manifest(facts: ReleaseFacts, partial: Path) -> dict[str, Any]:
    files: list[Artifact] = files_of(partial)
    return {
        "schema_version": 1,
        "run": facts.run,
        "project": facts.project,
        "merged": facts.merged,
        "evidence": {stage: sha256_file(partial / "evidence" / f"{stage}.json") for stage in sorted(facts.attempts)},
        "files": [f.model_dump() for f in files],
    }


def _adopt(target: Path, facts: ReleaseFacts) -> Sha256:
    """The manifest of a bundle that is already published, when it is intact and of the same attempts."""
    faults = verify_release(target)
    if not faults:
        manifest = json.loads((target / MANIFEST).read_bytes())
        same = {stage: sha256_file(folder / "evidence.json") for stage, folder in facts.attempts.items()}
        if manifest["run"] == facts.run and manifest["evidence"] == same and manifest["merged"] == facts.merged:
            return sha256_file(target / MANIFEST)
        faults = ["it was made from other attempts"]
    raise VerificationFailed(
        f"{target} is already there and is not this release: {faults[0]}", "move that folder away, then resume"
    )
