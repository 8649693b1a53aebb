"""Every value that a spec stands for, and whether the person wrote it or the default did."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel

from specs.project import Project
from specs.yaml_tree import Path, dotted


def effective_spec(spec: Project) -> list[tuple[str, Any, bool]]:
    """(dotted path, value, is_default) of every leaf, in the order of the models; passwords in URLs are masked."""
    found: list[tuple[str, Any, bool]] = []
    _collect(spec, (), False, found)
    return found


def _collect(value: Any, path: Path, default: bool, found: list[tuple[str, Any, bool]]) -> None:
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            _collect(getattr(value, name), (*path, name), default or name not in value.model_fields_set, found)
    elif isinstance(value, dict) and value:
        for key, item in value.items():
            _collect(item, (*path, key), default, found)
    elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
        for position, item in enumerate(value):
            _collect(item, (*path, position), default, found)
    else:
        found.append((dotted(path), _masked(value), default))


def _masked(value: Any) -> Any:
    return re.sub(r"(://[^/@:]*):[^@]*@", r"\1:***@", value) if isinstance(value, str) else value
