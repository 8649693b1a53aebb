"""From `parent` in a spec to the record that a run is frozen with: an earlier run, or a release in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flows.ledger import Ledger
from flows.rehearsing import is_rehearsal
from flows.rewritten import rewritten_samples
from flows.state import fold
from flows.workspace import Workspace, frozen_spec
from specs.canonical import digest_folder, sha256_file
from specs.errors import InputError, VerificationFailed
from specs.parameters import TrainingConfiguration
from specs.parent import LearntSamples, Parent
from specs.project import Project
from specs.results import Evidence
from tasks.evaluate.release_check import ATTESTATION, MANIFEST, verify_release
from tasks.parents import ADAPTER

NAME_ONE = "name a run whose training is finished (`gatewright runs`), or a folder of the project with a release"


def with_parent(spec: Project, project_dir: Path, ledger: Ledger) -> Project:
    """The spec with what its `parent` is now. Raises `InputError` or `VerificationFailed` for what cannot be one."""
    if spec.parent is None:
        return spec.model_copy(update={"parent_record": None})
    if spec.method == "full":
        raise InputError(
            "parent is an adapter, and method full trains no adapter",
            "set base_model to the folder of the earlier model and leave parent out",
        )
    if ledger.knows(spec.parent) and (project_dir / "runs" / spec.parent).is_dir():
        found = _of_run(spec.parent, spec.parent, project_dir, ledger)
    else:
        found = _of_release(spec.parent, project_dir, ledger)
    return spec.model_copy(update={"parent_record": found})


def _of_run(named: str, run: str, project_dir: Path, ledger: Ledger) -> Parent:
    """The adapter of a run's last training, with the digests of its evidence."""
    workspace, state = Workspace(project_dir, run), fold(ledger.events(run))
    if is_rehearsal(state):
        raise InputError(f"parent {named} is a rehearsal: nothing of it is used again", NAME_ONE)
    attempt = state.current("train")
    if attempt is None or attempt.state != "published":
        raise InputError(f"parent {named} has no finished training", NAME_ONE)
    folder = workspace.attempt("train", attempt.number)
    if sha256_file(folder / "evidence.json") != attempt.evidence:
        raise VerificationFailed(f"the evidence of parent {named} is not what was recorded", "restore it from a backup")
    evidence = Evidence.model_validate_json((folder / "evidence.json").read_bytes())
    adapter = folder / "artifacts" / ADAPTER
    _require_recorded(named, folder, evidence)
    if not adapter.is_dir():
        raise InputError(f"parent {named} trained no adapter", NAME_ONE)
    settings = json.loads((folder / "artifacts" / "settings.json").read_bytes())
    before = frozen_spec(workspace)
    finished = {stage: found.number for stage, found in state.inputs(state.stages).items()}
    rewritten = rewritten_samples(workspace, before, finished)
    mine = _samples_of(workspace, rewritten, state.current("data"), settings, project_dir)
    earlier = before.parent_record
    return Parent(
        named=named,
        run=run,
        folder=(folder / "artifacts").relative_to(project_dir).as_posix(),
        weights_sha256=digest_folder(adapter),
        base_model=before.base_model,
        base_model_sha256=settings["base_model_sha256"],
        **_adapter_of(settings["requested"]),
        learnt=[*([mine] if mine else []), *(earlier.learnt if earlier else [])],
        learnt_unknown=mine is None or (earlier is not None and earlier.learnt_unknown),
    )


def _require_recorded(named: str, folder: Path, evidence: Evidence) -> None:
    for artifact in evidence.artifacts:
        if artifact.path.startswith((f"artifacts/{ADAPTER}/", "artifacts/settings.json")):
            path = folder / artifact.path
            if not path.is_file() or sha256_file(path) != artifact.sha256:
                raise VerificationFailed(
                    f"{artifact.path} of parent {named} is not what its run recorded", "restore it from a backup"
                )


def _samples_of(
    workspace: Workspace, rewritten: Path | None, attempt: Any, settings: dict[str, Any], project_dir: Path
) -> LearntSamples | None:
    """The samples that a training names by digest, those of `data` or rewritten ones, where they still lie."""
    if attempt is None:
        return None
    path = workspace.attempt("data", attempt.number) / "artifacts" / "samples.parquet"
    path = rewritten or path
    if not path.is_file() or sha256_file(path) != settings["samples_sha256"]:
        return None
    where = path.relative_to(project_dir).as_posix()
    return LearntSamples(run=workspace.run, path=where, sha256=settings["samples_sha256"])


def _adapter_of(requested: dict[str, Any]) -> dict[str, Any]:
    """Method and adapter out of flat requested settings."""
    lora = {k.removeprefix("lora."): v for k, v in requested.items() if k.startswith("lora.")}
    training = TrainingConfiguration(method=requested["method"], lora=lora)
    return {"method": training.method, "lora": training.lora}


def _of_release(named: str, project_dir: Path, ledger: Ledger) -> Parent:
    """The adapter of a release bundle. The samples of a run that is not of this project are not known."""
    folder = (project_dir / named).resolve()
    if not folder.is_relative_to(project_dir.resolve()) or not (folder / MANIFEST).is_file():
        raise InputError(f"parent {named!r} is neither a run of this project nor a folder with a release", NAME_ONE)
    faults = verify_release(folder)
    if faults:
        raise VerificationFailed(
            f"the release in {named} does not verify: {faults[0]}", "take it from its source again"
        )
    if not (folder / ADAPTER).is_dir():
        raise InputError(f"the release in {named} holds no adapter", NAME_ONE)
    predicate = json.loads((folder / ATTESTATION).read_bytes())["predicate"]
    materials = {m["name"]: m["digest"]["sha256"] for m in predicate["materials"]}
    run = str(predicate["run"])
    here = _of_run(named, run, project_dir, ledger) if ledger.knows(run) and _is_here(project_dir, run) else None
    digest = digest_folder(folder / ADAPTER)
    same = here is not None and here.weights_sha256 == digest
    return Parent(
        named=named,
        run=run,
        folder=folder.relative_to(project_dir.resolve()).as_posix(),
        weights_sha256=digest,
        base_model=str(predicate["base_model"]["name"]),
        base_model_sha256=materials["base_model"],
        **_adapter_of(predicate["parameters"]["requested"]),
        learnt=here.learnt if here is not None and same else [],
        learnt_unknown=here.learnt_unknown if here is not None and same else True,
    )


def _is_here(project_dir: Path, run: str) -> bool:
    return (project_dir / "runs" / run / "spec.json").is_file()
