"""Where things of a project and of a run lie on disk, and what is frozen when a run begins."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from specs.canonical import sha256_bytes, sha256_file
from specs.credentials import with_credentials, without_secrets
from specs.errors import GatewrightError, InputError
from specs.files import write_json
from specs.policy import Policy, read_frozen
from specs.stage_graph import BUILT_IN, StageGraph, stage_name_problem

if TYPE_CHECKING:  # whoever only looks where things lie does not load the spec
    from specs.project import Project

RUN_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

_VERSIONS: tuple[str, ...] = (
    "torch",
    "transformers",
    "peft",
    "accelerate",
    "safetensors",
    "tokenizers",
    "prefect",
    "langchain",
    "pydantic",
    "polars",
    "pyarrow",
    "numpy",
    "sqlalchemy",
    "rensa",
    "pypdfium2",
    "pdfplumber",
)
_ENVIRONMENT = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "LANG")


def numbered(run_dir: Path, stage: str) -> str:
    """The folder name of a stage or gate of a run: `02-dry_run`, by its place in the run's own order."""
    order = frozen_graph(run_dir).order
    return f"{order.index(stage) + 1:02d}-{stage}" if stage in order else f"00-{stage}"


def frozen_graph(run_dir: Path) -> StageGraph:
    """The stages of a run by its frozen spec. A spec that is missing or says nothing of stages means the built-in ones.

    What an audit relies on is what the first event says; it compares the two.
    """
    path = run_dir / "spec.json"
    try:
        about = path.stat()
    except OSError:
        return BUILT_IN
    return _graph_in(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=64)
def _graph_in(path: Path, modified_ns: int, size: int) -> StageGraph:
    from pydantic_core import from_json

    try:
        added = from_json(path.read_bytes()).get("added_stages")
        if not added:
            return BUILT_IN
        from specs.added import AddedStage, graph_of

        if any(stage_name_problem(name) for name in added):
            return BUILT_IN
        return graph_of({name: AddedStage.model_validate(stage) for name, stage in added.items()})
    except (OSError, ValueError, AttributeError):
        return BUILT_IN


@dataclass(frozen=True)
class Workspace:
    """The folders of one run."""

    project_dir: Path
    run: str

    @property
    def folder(self) -> Path:
        """`<project>/runs/<run>`."""
        return self.project_dir / "runs" / self.run

    def stage_folder(self, stage: str) -> Path:
        """`<nn>-<stage>`, numbered in the order of the stages."""
        return self.folder / numbered(self.folder, stage)

    def attempt(self, stage: str, number: int) -> Path:
        """The published folder of an attempt."""
        return self.stage_folder(stage) / f"{number:03d}"

    def partial(self, stage: str, number: int) -> Path:
        """Where an attempt is written until it is complete."""
        return self.stage_folder(stage) / f"{number:03d}.partial"

    def checkpoints(self, stage: str, number: int) -> Path:
        """Checkpoints of an attempt: outside its artifacts, because they may be deleted."""
        return self.folder / "checkpoints" / f"{stage}-{number:03d}"

    def handed_out(self, stage: str, round: int) -> Path:
        """What a person was given who does the work of a stage, by the round of its gate."""
        return self.folder / "handed_out" / numbered(self.folder, stage) / f"{round:03d}"

    def handed_in(self, sha256: str) -> Path:
        """A file that a person handed in, by its digest."""
        return self.folder / "handed_in" / sha256

    @property
    def release(self) -> Path:
        """The release bundle."""
        return self.folder / "release"

    @property
    def log(self) -> Path:
        """What went wrong inside, in detail."""
        return self.folder / "internal-errors.log"


def ledger_url(project_dir: Path, spec: Project | None = None) -> str | Path:
    """The database of a project: what the spec names, else SQLite inside the project.

    A SQLite file that is named by a relative path lies relative to the project, wherever the command is called.
    """
    if spec is None or not spec.ledger:
        return project_dir / ".gatewright" / "gatewright.db"
    scheme, found, place = spec.ledger.partition("://")
    if not found:
        return str(project_dir / spec.ledger)
    if scheme.split("+")[0] != "sqlite" or not place.startswith("/"):
        return spec.ledger
    return f"{scheme}:///{(project_dir / place[1:]).as_posix()}"


def check_run_id(run: str) -> str:
    """A run id is a folder name on every system; raises `InputError` otherwise."""
    if not re.fullmatch(RUN_ID, run) or run.endswith("."):
        raise InputError(f"{run!r} cannot be a run id", "use letters, digits, dots, dashes; at most 64 characters")
    return run


@cache
def code_version() -> str:
    """Version and digest of the code that runs, as `0.1.0 sha256:...`."""
    from importlib import metadata

    root = Path(__file__).resolve().parent.parent
    parts: list[str] = []
    for package in ("specs", "tasks", "agents", "flows"):
        files = sorted(p for p in (root / package).rglob("*.py"))
        parts.extend(sha256_bytes(p.read_bytes()) for p in files)
    try:
        version = metadata.version("gatewright")
    except metadata.PackageNotFoundError:
        version = "0"
    return f"{version} sha256:{sha256_bytes(''.join(parts).encode())}"


def environment() -> dict[str, Any]:
    """What of this machine may matter to a result: an allow-list, nothing else of the environment."""
    import platform
    from importlib import metadata

    versions: dict[str, str | None] = {}
    for name in _VERSIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "processor_count": os.cpu_count(),
        "versions": versions,
        "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        "byte_order": sys.byteorder,
    }


def freeze(workspace: Workspace, spec: Project) -> dict[str, str]:
    """Write spec (without passwords), policy and environment of a new run; returns the digest of each file's bytes."""
    documents: dict[str, Any] = {
        "spec": without_secrets(spec),
        "policy": spec.policy,
        "environment": environment(),
    }
    return {
        name: sha256_bytes(write_json(workspace.folder / f"{name}.json", document))
        for name, document in documents.items()
    }


def frozen_spec(workspace: Workspace) -> Project:
    """The spec that the run began with."""
    path = workspace.folder / "spec.json"
    if not path.is_file():
        raise InputError(f"{path} is missing", "restore the run's folder from a backup; the run cannot go on without")
    from specs.project import Project

    try:
        return Project.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise InputError(f"{path} was changed: it is no spec", "restore the run's folder from a backup") from error


def live_spec(workspace: Workspace, frozen: Project | None = None) -> Project:
    """The spec that the run began with, and for its URLs the passwords that project.yaml has now: none is frozen."""
    spec = frozen or frozen_spec(workspace)
    if not (spec.ledger or spec.hub.mirror or spec.agent.base_url):
        return spec
    from specs.loading import load_project

    try:
        return with_credentials(spec, load_project(workspace.project_dir).spec)
    except GatewrightError:  # project.yaml may be changed or gone by now; the run has its own spec
        return spec


def frozen_policy(workspace: Workspace) -> Policy:
    """The policy that the run began with."""
    path = workspace.folder / "policy.json"
    try:
        return read_frozen(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is missing or was changed: it is no policy", "restore it from a backup") from error


def project_inputs(project_dir: Path, spec: Project) -> dict[str, str]:
    """Digest of every raw file the sources name, by its path relative to the project."""
    from tasks.data.files import matching_files, source_name

    found: dict[str, str] = {}
    for source in spec.sources:
        for path in matching_files(project_dir, source.path):
            found[source_name(project_dir, path)] = sha256_file(path)
    return dict(sorted(found.items()))
