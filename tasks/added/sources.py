"""The files and the code that an added stage runs on: found without running any of it, and hashed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from specs.added import AddedStage, in_package
from specs.canonical import sha256_bytes, sha256_file
from specs.errors import InputError


def digests_of(project_dir: Path, stage: AddedStage, packages: list[str]) -> dict[str, str]:
    """Digest of each file of the project (`project:<path>`) and of each package (`code:<package>`) that it names.

    Raises `InputError` for a file or a package that is not there.
    """
    found = {f"project:{path}": sha256_file(project_file(project_dir, path)) for path in stage.project_files}
    named = {package for task in stage.tasks if (package := in_package(task, packages))}
    return found | {f"code:{package}": package_digest(package) for package in sorted(named)}


def project_file(project_dir: Path, path: str) -> Path:
    """A file of the project. Raises `InputError` where there is none, or where it is a link that leads out."""
    file = project_dir / path
    if not file.is_file():
        raise InputError(f"{path} is not a file of the project", f"put it there: {file}")
    if not file.resolve().is_relative_to(project_dir.resolve()):
        raise InputError(f"{path} is a link that leads out of the project", "copy the file into the project")
    return file


def package_digest(package: str) -> str:
    """One digest over the Python files of a package, by path and content. Nothing is imported."""
    root = package_root(package)
    files = sorted(p for p in root.rglob("*.py") if p.is_file()) if root.is_dir() else [root]
    lines = [f"{p.relative_to(root).as_posix() if root.is_dir() else p.name} {sha256_file(p)}\n" for p in files]
    return sha256_bytes("".join(lines).encode())


def package_root(package: str) -> Path:
    """The folder or file of a package. Raises `InputError` when it is not installed."""
    top, *rest = package.split(".")
    try:
        spec = find_spec(top)  # of a top-level name this runs none of its code
    except (ImportError, ValueError):
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec else []
    if spec and not places and spec.origin and not rest:
        return Path(spec.origin)
    for place in map(Path, places):
        for found in (place.joinpath(*rest), place.joinpath(*rest).with_suffix(".py")):
            if (found.is_dir() and any(found.glob("*.py"))) or (rest and found.is_file()):
                return found
    raise InputError(f"the package {package} is not installed here", f"pip install what provides {top}")


def problems_of(project_dir: Path, stage: AddedStage, packages: list[str]) -> Iterator[tuple[str, str]]:
    """(what is wrong, the way out) of files and modules that a stage names and that are not there."""
    for path in stage.project_files:
        try:
            project_file(project_dir, path)
        except InputError as error:
            yield error.message, error.hint
    for task in stage.tasks:
        if in_package(task, packages) is None:
            continue  # the spec's own check says so
        try:
            package_root(task.partition(":")[0])
        except InputError:
            module = task.partition(":")[0]
            yield (
                f"the module {module} is not there",
                f"install what provides {module.partition('.')[0]}, or correct it",
            )
