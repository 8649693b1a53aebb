"""JSON Schema of `project.yaml` for editors: draft 2020-12, with the stages, parameters and metrics by name."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from specs.consistency import is_numeric, parameter_annotation, parameter_field
from specs.metrics import STAGES, definitions
from specs.project import Bounds, Project, SpecCriterion, parameter_names

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_OBJECT = {"type": "object", "additionalProperties": False}


def project_json_schema() -> dict[str, Any]:
    """The schema as plain data; equal on every call."""
    schema = Project.model_json_schema()
    definitions_ = schema["$defs"]
    definitions_.setdefault("Bounds", Bounds.model_json_schema())
    definitions_.setdefault("SpecCriterion", SpecCriterion.model_json_schema())
    properties = schema["properties"]
    _by_stage(properties["acceptance"], {stage: _criteria(stage) for stage in STAGES})
    _by_stage(properties["stages"], {stage: _settings(stage) for stage in STAGES})
    _by_stage(properties["caps"], {stage: _caps(stage) for stage in STAGES})
    for model in definitions_.values():
        if "kind" in model["properties"] and "description" in model:
            model["properties"]["kind"].setdefault("description", model["description"])
    schema["title"] = "project.yaml of Gatewright"
    return {"$schema": DIALECT, **schema}


def _by_stage(block: dict[str, Any], stages: dict[str, Any]) -> None:
    block["properties"] = stages
    block["additionalProperties"] = False


def _criteria(stage: str) -> dict[str, Any]:
    metrics = [{"const": d.name, "description": f"{d.title['en']}, in {d.unit}"} for d in definitions(stage)]
    item = {"allOf": [{"$ref": "#/$defs/SpecCriterion"}, {"properties": {"metric": {"oneOf": metrics}}}]}
    return {"type": "array", "items": item, "description": f"criteria of {stage}"}


def _settings(stage: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name in sorted(parameter_names(stage)):
        field = parameter_field(stage, name)
        fixed = TypeAdapter(parameter_annotation(field)).json_schema()
        options = [fixed, {"$ref": "#/$defs/Bounds"}] if is_numeric(field) else [fixed]
        settings[name] = {"anyOf": options, "description": field.description or f"parameter of {stage}"}
    return {**_OBJECT, "properties": settings, "description": f"fixed values and bounds for {stage}"}


def _caps(stage: str) -> dict[str, Any]:
    names = [name for name in sorted(parameter_names(stage)) if is_numeric(parameter_field(stage, name))]
    numbers = {name: {"type": "number", "description": f"{name} at most"} for name in names}
    return {**_OBJECT, "properties": numbers, "description": f"upper limits for {stage}"}
