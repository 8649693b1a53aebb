"""The glossary gives the Chinese words that the program shows, and no thing two of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "words.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!word \||---)([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
READ_NOT_SHOWN = {
    "name_words.py",
    "synonyms.py",
    "colloquial.py",
    "personal_names.py",
    "personal_numbers.py",
    "corpus.py",
}
HAN = re.compile(r"[\u4e00-\u9fff]")


def chinese_texts() -> Iterator[str]:
    """Every text of the modules that hold Chinese; docstrings are none."""
    for floor in ("specs", "tasks", "agents", "flows"):
        for path in sorted((ROOT / floor).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if path.name in READ_NOT_SHOWN or not HAN.search(source):
                continue
            tree = ast.parse(source)
            said = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
                    yield node.value


SHOWN = "\n".join(chinese_texts())


@pytest.mark.parametrize(("word", "chinese", "meaning"), ROWS)
def test_every_chinese_word_is_shown_by_the_program_or_in_brackets(word: str, chinese: str, meaning: str):
    assert HAN.search(chinese), word
    if not re.fullmatch(r"\(.+\)", chinese):
        assert chinese in SHOWN, f"{word}: no text of the program says {chinese}"
    for other in re.findall(r"[（(]([\u4e00-\u9fff]+)[)）]", meaning):
        assert other in SHOWN, f"{word}: no text of the program says {other}"


def test_no_word_stands_twice():
    words = [word for word, _, _ in ROWS]
    assert len(words) > 50
    assert len(words) == len(set(words))


@pytest.mark.parametrize(
    "other", ["提议", "试跑", "拒绝", "越过", "自我批准", "自我审批", "越权", "关卡", "账本", "评审"]
)
def test_the_program_says_one_word_for_one_thing(other: str):
    assert other not in SHOWN
