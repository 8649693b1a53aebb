"""Read `project.yaml`: every problem of the file at once, each with line, value, rule and way out."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specs import consistency
from specs.base import Strict
from specs.errors import InputError, Problem, SpecError
from specs.explain import explain
from specs.model_walk import example, tag_of, union_members, walk
from specs.project import Project
from specs.words import nearest
from specs.yaml_tree import Path as Place
from specs.yaml_tree import Tree, dotted, read_yaml

FILE_NAME = "project.yaml"
MAX_BYTES = 128 * 1024
"""A spec has some kilobytes; YAML is read at about 30 kB a second."""
_MAX_PASSES = 8


@dataclass(frozen=True)
class LoadedProject:
    """A valid spec, with the folder it stands for and the text it was read from."""

    spec: Project
    folder: Path
    file: Path
    text: str


def load_project(place: Path) -> LoadedProject:
    """The spec of a project folder, or of a YAML file in it.

    Raises `InputError` when there is no readable text, `SpecError` with all problems of the text otherwise.
    """
    file = _find(place)
    text = _read_text(file)
    return LoadedProject(parse_project(text, file.name), file.parent.resolve(), file.resolve(), text)


def parse_project(text: str, file: str = FILE_NAME) -> Project:
    """The spec in `text`; `file` is the name that problems carry. Raises `SpecError`."""
    tree = read_yaml(text, file)
    if tree.data is None:
        raise SpecError([_top(file, "the file is empty", "`gatewright init DIR` writes a spec to start from")])
    if not isinstance(tree.data, dict):
        raise SpecError([_top(file, "must be a block of keys", "Begin with project: <name> on a line of its own")])
    problems = list(tree.problems)
    spec, replaced, found = _validate(tree)
    problems += found
    if spec is not None:
        problems += [p for p in consistency.check(spec, tree) if not _near(p.path, replaced)]
        problems += _booleans_as_numbers(spec, tree)
    if problems or spec is None:
        unique = {(p.path, p.rule): p for p in problems}
        raise SpecError(sorted(unique.values(), key=lambda p: (p.line or 0, p.path, p.rule)))
    return spec


def _top(file: str, rule: str, way_out: str) -> Problem:
    return Problem(file, None, "(top)", "", rule, way_out)


def _find(place: Path) -> Path:
    start = "`gatewright init DIR` makes a new project"
    try:
        if place.is_dir():
            file = place / FILE_NAME
            if file.is_file():
                return file
            others = sorted(p.name for p in place.iterdir() if p.suffix.lower() in (".yml", ".yaml"))
            hint = f"rename {others[0]} to {FILE_NAME}, or name that file" if others else start
            what = "is a folder, not a file" if file.exists() else "is not there"
            raise InputError(f"{place} is not a project: {FILE_NAME} {what}", hint)
        if not place.exists():
            raise InputError(f"{place} does not exist", f"name a project folder; {start}")
    except OSError as error:
        raise InputError(f"{place} cannot be read: {error.strerror}", "check the name and its permissions") from error
    if not place.is_file():
        raise InputError(f"{place} is neither a folder nor a regular file", "name a project folder or its project.yaml")
    return place


def _read_text(file: Path) -> str:
    try:
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise InputError(
                f"{file} has {size:,} bytes; a spec has at most {MAX_BYTES:,}",
                "name the project.yaml, and keep raw data in files of its own",
            )
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", "check its permissions") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{file}:{line}: byte {error.start + 1} (0x{data[error.start]:02x}) is not UTF-8{_guess(data)}",
            "save the file as UTF-8 and try again",
        ) from error


def _guess(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "; the file looks like UTF-16"
    try:
        text = data.decode("gb18030")
    except UnicodeDecodeError:
        return ""
    return "; the file looks like GB18030" if any("\u4e00" <= c <= "\u9fff" for c in text) else ""


def _validate(tree: Tree) -> tuple[Project | None, list[Place], list[Problem]]:
    """The spec, with every broken value replaced by an example, so that no problem hides behind another."""
    data = copy.deepcopy(tree.data)
    problems = consistency.prune(data, tree)
    replaced: list[Place] = []
    for _ in range(_MAX_PASSES):
        try:
            return Project.model_validate(data), replaced, problems
        except ValidationError as error:
            errors = error.errors(include_url=False)
        for entry in errors:
            if _is_echo(entry, tree):
                continue
            path, problem = explain(entry, tree)
            if entry["type"] != "value_error" or not _near(dotted(path), replaced):
                problems += [problem] if not _covered(path, replaced) else []
            _mend(data, entry, tree, replaced)
    return None, replaced, problems


def _is_echo(entry: Any, tree: Tree) -> bool:
    """Whether this is the other branch of `auto | block`, which nobody meant."""
    if entry["loc"][:1] != ("hardware",) or len(entry["loc"]) < 2:
        return False
    literal = str(entry["loc"][1]).startswith("literal[")
    return literal and len(entry["loc"]) == 2


def _covered(path: Place, replaced: list[Place]) -> bool:
    return any(path[: len(place)] == place for place in replaced)


def _near(path: str, replaced: list[Place]) -> bool:
    """Whether a value in, at or around the dotted path was replaced."""
    places = [dotted(place) for place in replaced]
    return any(
        p == path or p.startswith((path + ".", path + "[")) or path.startswith((p + ".", p + "[")) for p in places
    )


def _mend(data: Any, entry: Any, tree: Tree, replaced: list[Place]) -> None:
    """Take the broken value out, or put an example in its place."""
    path, place = walk(entry["loc"])
    if entry["type"] == "extra_forbidden" or entry["loc"][-1] == "[key]":
        _parent(data, path).pop(path[-1], None)
        return
    if entry["type"] == "union_tag_invalid":
        near = nearest(tree.texts.get((*path, "kind"), ""), [t for t in map(tag_of, union_members(place)) if t])
        if near:
            _parent(data, (*path, "kind"))["kind"] = near[0]
            replaced.append((*path, "kind"))
            return
    parent = _parent(data, path)
    if not path or parent is None:
        return
    replaced.append(path)
    if _has_default(path):
        parent.pop(path[-1], None)
    else:
        word = "x" + "".join(str(step) for step in path if isinstance(step, int))
        parent[path[-1]] = example(walk(path)[1], word)


def _has_default(path: Place) -> bool:
    owner = walk(path[:-1])[1]
    models = union_members(owner) or (owner,)
    fields = [m.model_fields[str(path[-1])] for m in models if str(path[-1]) in getattr(m, "model_fields", {})]
    return bool(fields) and not any(f.is_required() for f in fields)


def _parent(data: Any, path: Place) -> Any:
    for step in path[:-1]:
        data = data[step]
    return data


def _booleans_as_numbers(spec: Project, tree: Tree) -> list[Problem]:
    """`true` where a number belongs: pydantic would read it as 1."""
    rule = "must be a number, and YAML reads this as true or false"
    wrong = [p for p in sorted(tree.texts, key=dotted) if isinstance(tree.at(p), bool) and _is_number(spec, p)]
    return [tree.problem(path, rule, "Write a number") for path in wrong]


def _is_number(spec: Any, path: Place) -> bool:
    for step in path:
        try:
            spec = getattr(spec, str(step)) if isinstance(spec, Strict) else spec[step]
        except (AttributeError, KeyError, IndexError, TypeError):
            return False
    return isinstance(spec, int | float) and not isinstance(spec, bool)
