"""Every reason for which a row is not kept is told in words, in English and Chinese."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from specs.fates import FATES, REASONS, reason_text
from tests.support.raw_project import Finished

SOURCES = sorted((Path(__file__).parents[2] / "tasks" / "data").glob("*.py"))
CODE = re.compile(r"[a-z]+(?:_[a-z]+)+")


def strings(node: ast.AST) -> list[str]:
    """Texts in a piece of code, but for those that something is compared with."""
    if isinstance(node, ast.Compare):
        return []
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    return [text for child in ast.iter_child_nodes(node) for text in strings(child)]


def reasons_in(tree: ast.AST) -> set[str]:
    """Texts that look like a reason and stand beside a fate: in a call, a tuple or a conditional."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            beside = name in ("drop", "Fate", "FlawedRow")
        else:
            beside = isinstance(node, ast.Tuple) and bool({"quarantined", "out_of_scope"} & set(strings(node)))
        if beside:
            found |= {text for text in strings(node) if CODE.fullmatch(text)}
    return found - {"out_of_scope"}


def test_every_reason_in_the_code_is_explained():
    found = {reason for path in SOURCES for reason in reasons_in(ast.parse(path.read_text(encoding="utf-8")))}
    assert len(found) > 15
    assert found <= set(REASONS), sorted(found - set(REASONS))


def test_every_reason_that_is_explained_is_given_somewhere():
    code = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    of_fields = {f"no_{name}" for name in ("phenomenon", "repair", "meaning", "fault_type")}
    assert [reason for reason in REASONS if reason not in of_fields and f'"{reason}"' not in code] == []
    assert 'f"no_{name}"' in code


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_reason_and_fate_has_words_of_its_own(language):
    texts = [words[language] for words in REASONS.values()]
    assert len(set(texts)) == len(texts)
    assert all(text and text[0] not in " `" for text in texts)
    assert set(FATES) == {"kept", "merged", "quarantined", "out_of_scope"}
    assert reason_text("of_an_older_run", language) == "of_an_older_run"


def test_every_fate_of_a_run_is_explained(finished: Finished):
    told = {row["reason"] for row in finished.table("row_ledger") if row["reason"]}
    assert told
    assert told <= set(REASONS)
