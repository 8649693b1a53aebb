"""A Chinese report says in Chinese why a metric has no value."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from agents.metric_reasons import in_words, said_after
from tasks.memory.measurement import DRIVER_SOURCE
from tasks.verify import applicable

VERIFIERS = Path(applicable.__file__).parent


def reasons_in_code() -> set[str]:
    """Every reason that a verifier says word by word; those with values in them are given by `{name}` templates."""
    found = {applicable.NO_QUESTION, applicable.NO_FAULT_TYPE}
    for file in VERIFIERS.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                found |= {_text(word.value) for word in node.keywords if word.arg == "reason"}
                if ast.unparse(node.func).endswith("not_applicable"):
                    found.add(_text(node.args[1]))
            elif isinstance(node, ast.Tuple) and len(node.elts) == 2 and ast.unparse(node.elts[0]) == "None":
                found.add(_text(node.elts[1]))
    return found - {""}


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_every_reason_for_no_value_has_its_chinese() -> None:
    reasons = reasons_in_code()
    assert len(reasons) > 12
    said = reasons | set(DRIVER_SOURCE.values()) | {"fed.jsonl is missing or empty", "no plain text is held out"}
    assert [text for text in sorted(said) if not re.search("[一-鿿]", in_words("zh", text))] == []


def test_a_reason_that_is_not_known_stays_and_english_is_left_alone() -> None:
    assert said_after("zh", "未测得", "this run has no parent") == "未测得：本次运行没有父训练"
    assert said_after("en", "not measured", "this run has no parent") == "not measured: this run has no parent"
    assert in_words("zh", "s1: 3 of 4") == "s1: 3 of 4"
