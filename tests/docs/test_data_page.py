"""The snippets of docs/data.md are valid specs, and the page names every kind of personal data as it is masked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from specs.privacy import KIND_TITLES, PLACEHOLDERS
from specs.project import Project

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"<!-- spec -->\n```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_snippet_is_part_of_a_valid_spec(snippet: str):
    given = YAML(typ="safe").load(snippet)
    notes = {"sources": [{"kind": "notes", "path": "n.md"}]}
    spec = Project.model_validate({"project": "p", "base_model": "package:gatewright-tiny", **notes, **given})
    assert set(given) <= set(spec.model_dump())


def test_every_placeholder_is_on_the_page():
    assert len(SNIPPETS) >= 3
    assert set(PLACEHOLDERS) == set(KIND_TITLES)
    assert all(f"`{word}`" in PAGE for words in PLACEHOLDERS.values() for word in words.values())


def test_the_links_of_the_page_lead_somewhere():
    links = re.findall(r"\]\(([a-z-]+\.md)\)", PAGE)
    assert len(links) >= 4
    assert [name for name in links if not (ROOT / "docs" / name).is_file()] == []
