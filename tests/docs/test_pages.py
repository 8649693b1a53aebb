"""The generated pages equal what the code says, and hold every metric, event, parameter, key and exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specs import docs, errors
from specs.events import PAYLOADS
from specs.metrics import DEFINITIONS, STAGES
from specs.parameters import PARAMETERS, LoraParameters, TrainingConfiguration

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sorted(docs.PAGES))
def test_a_page_is_what_the_code_says(name: str):
    assert (ROOT / name).read_text(encoding="utf-8") == docs.PAGES[name](), "run `make docs`"


@pytest.mark.parametrize("name", sorted(docs.READMES))
def test_the_stage_table_of_a_readme_is_what_the_code_says(name: str):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert docs.TABLE.search(text)
    assert docs.with_stage_table(text, docs.READMES[name]) == text, "run `make docs`"


def rows(name: str, heading: str) -> dict[str, list[str]]:
    """First cell to all cells of the table under a heading."""
    section = re.split(r"^## ", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    body = next(s for s in section if s.splitlines()[0] == heading)
    lines = [line for line in body.splitlines() if line.startswith("| `")]
    cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return {c[0].strip("`"): c for c in cells}


@pytest.mark.parametrize("stage", STAGES)
def test_every_metric_stands_in_its_table_with_unit_bound_and_source(stage: str):
    found = rows("docs/metrics.md", stage)
    wanted = {d.name: d for d in DEFINITIONS if d.stage == stage}
    assert set(found) == set(wanted)
    for name, metric in wanted.items():
        _, title, unit, bound, acts, source, *needs = found[name]
        assert (needs or [""])[0] == metric.needs
        assert title
        assert unit == metric.unit
        assert source == metric.recomputed
        assert acts == ("reported" if metric.op is None else "blocking" if metric.blocking else "warning")
        assert bool(bound) == (metric.op is not None)


@pytest.mark.parametrize("kind", sorted(PAYLOADS))
def test_every_event_stands_in_its_page_with_every_field(kind: str):
    assert set(rows("docs/events.md", kind)) == set(PAYLOADS[kind].model_fields)


def test_every_parameter_stands_in_its_page_with_its_meaning():
    models = {**PARAMETERS, "TrainingConfiguration": TrainingConfiguration, "LoraParameters": LoraParameters}
    for heading, model in models.items():
        found = rows("docs/parameters.md", heading)
        assert set(found) == set(model.model_fields)
        assert all(cells[-1] for cells in found.values()), f"a parameter of {heading} is not described"


def test_every_key_of_a_spec_stands_in_its_page():
    for place, model in docs.spec_models():
        assert set(rows("docs/spec.md", place)) == set(model.model_fields), place


def test_every_exit_code_and_every_error_stand_in_their_page():
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert set(docs.EXIT_CODES) == codes
    text = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    for code in codes:
        assert f"| `{code}` |" in text
    for kind in docs.error_tree(errors.GatewrightError):
        assert f"| `{kind.__name__}` | `{kind.exit_code}` |" in text


def test_the_drawn_tree_of_errors_is_the_tree():
    drawn = re.findall(r"^([│├└─ ]*)(\w+) +(\d+) ", errors.__doc__ or "", flags=re.MULTILINE)
    tree = docs.error_tree(errors.GatewrightError)
    assert [(name, int(code)) for _, name, code in drawn] == [(e.__name__, e.exit_code) for e in tree]
    depth = {e.__name__: len(e.__mro__) - len(errors.GatewrightError.__mro__) for e in tree}
    assert {name: len(lead) // 4 for lead, name, _ in drawn} == depth
