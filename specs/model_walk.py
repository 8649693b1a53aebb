"""Where an error location lies in the models: the path a person sees, and the model or type at that place."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from specs.project import Project
from specs.yaml_tree import Path


def bare(annotation: Any) -> Any:
    """The annotation without `Annotated` and without `| None`."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    members = [m for m in union_members(annotation) if m is not type(None)]
    return bare(members[0]) if members and len(members) == 1 else annotation


def union_members(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, else nothing."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else ()


def is_model(annotation: Any) -> bool:
    """Whether the annotation is a model class."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def tag_of(model: Any) -> str | None:
    """The `kind` that selects this model among the sources."""
    kind = model.model_fields.get("kind") if is_model(model) else None
    values = get_args(kind.annotation) if kind else ()
    return values[0] if len(values) == 1 else None


def walk(location: tuple[int | str, ...]) -> tuple[Path, Any]:
    """The path of a pydantic error location (union tags and `[key]` taken out), and the annotation there."""
    path: Path = ()
    place: Any = Project
    for step in location:
        place = bare(place)
        members = union_members(place)
        if members:
            chosen = [m for m in members if tag_of(m) == step or getattr(m, "__name__", None) == step]
            if chosen or str(step).startswith("literal["):
                place = chosen[0] if chosen else Literal["auto"]
                continue
        if step == "[key]":
            continue
        path = (*path, step)
        place = below(place, step)
    return path, bare(place)


def below(place: Any, step: int | str) -> Any:
    """The annotation one step further down; None where nothing is known."""
    place = bare(place)
    if is_model(place):
        field = place.model_fields.get(step)
        return field.annotation if field else None
    for member in union_members(place):
        if is_model(member) and step in member.model_fields:
            return member.model_fields[step].annotation
    if get_origin(place) in (list, dict):
        return get_args(place)[-1]
    return None


def known_keys(place: Any) -> list[str]:
    """The keys that may stand at a place: fields of a model, or the literal keys of a mapping."""
    place = bare(place)
    if is_model(place):
        return list(place.model_fields)
    if get_origin(place) is dict:
        return [str(key) for key in get_args(get_args(place)[0])]
    return [key for member in union_members(place) if is_model(member) for key in member.model_fields]


def key_homes(annotation: Any = Project, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every (key, dotted place) of the models, to say where a misplaced key belongs."""
    annotation = bare(annotation)
    if get_origin(annotation) is list:
        yield from key_homes(get_args(annotation)[0], prefix + "[]")
    for member in union_members(annotation):
        yield from key_homes(member, prefix)
    if is_model(annotation):
        for name, field in annotation.model_fields.items():
            path = f"{prefix}.{name}".removeprefix(".")
            yield name, path
            yield from key_homes(field.annotation, path)


def example(annotation: Any, word: str = "x") -> Any:
    """A value that validates, to look past a broken one: the other problems of a file are still found."""
    annotation = bare(annotation)
    members = union_members(annotation)
    if members:
        return example(next((m for m in members if tag_of(m) == "notes"), members[0]), word)
    if is_model(annotation):
        fields = annotation.model_fields
        return {name: example(f.annotation, word) for name, f in fields.items() if f.is_required()}
    origin = get_origin(annotation)
    if origin is Literal:
        return get_args(annotation)[0]
    if origin is list:
        return [example(get_args(annotation)[0], word)]
    if origin is dict:
        return {}
    return {str: word, bool: True}.get(annotation, 1)
