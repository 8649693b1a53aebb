"""Whatever is in project.yaml: a spec, or problems that can be shown. Never another exception."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from specs.errors import SpecError
from specs.loading import parse_project
from specs.metrics import STAGES
from specs.project import Project, parameter_names

WORDS = sorted(
    {*Project.model_fields, *STAGES, *parameter_names("train"), "kind", "path", "columns", "notes", "work_orders"}
    | {"min", "max", "metric", "op", "bound", "id", "approvers", "proposer", "llm", "gpu", "auto", "phenomenon", "x"}
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**20), st.floats(), st.sampled_from(WORDS), st.text(max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)),
    max_leaves=12,
)
BASE: dict[str, Any] = {"project": "a", "base_model": "b", "sources": [{"kind": "notes", "path": "n.md"}]}


def survives(text: str) -> None:
    found = []
    try:
        parse_project(text)
    except SpecError as error:
        found = error.problems or [None]
    assert all(p and p.rule and p.path and "\n" not in str(p) for p in found)


@given(st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=5))
@settings(max_examples=300, deadline=None)
def test_any_structure_is_a_spec_or_a_list_of_problems(document: dict[str, Any]):
    survives(json.dumps({**BASE, **document}))


@given(st.text(max_size=80))
@settings(max_examples=200, deadline=None)
def test_any_text_is_a_spec_or_a_list_of_problems(text: str):
    survives(text)


@given(
    st.sampled_from(["acceptance", "stages", "caps", "policy", "sources", "hardware", "agent"]),
    st.one_of(VALUES, st.dictionaries(st.sampled_from(STAGES), VALUES, max_size=3)),
)
@settings(max_examples=300, deadline=None)
def test_any_value_of_a_section_is_a_spec_or_a_list_of_problems(section: str, value: Any):
    survives(json.dumps({**BASE, section: value}))
