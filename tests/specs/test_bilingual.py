"""Every text that people read is there in both languages, and both say it with the same values."""

import ast
import string
from pathlib import Path

import pytest

from specs.bilingual import Texts

ROOT = Path(__file__).parents[2]
IN_UNITS_OF_ITS_OWN = {"warn.large": ({"billions"}, {"yi"})}
"""Large numbers are counted in billions in English and in 亿 in Chinese."""


def _texts() -> list[tuple[str, dict[str, tuple[str, str]]]]:
    """The tables that `Texts` are made of, read from the source: importing all of it would take torch."""
    found = []
    for path in sorted(p for name in ("specs", "tasks", "agents", "flows") for p in (ROOT / name).rglob("*.py")):
        body = ast.parse(path.read_text("utf-8")).body
        tables = {node.target.id: node.value for node in body if isinstance(node, ast.AnnAssign) and node.value}
        calls = [n for node in body for n in ast.walk(node) if isinstance(n, ast.Call)]
        for call in calls:
            if isinstance(call.func, ast.Name) and call.func.id == "Texts":
                table = call.args[0]
                table = tables[table.id] if isinstance(table, ast.Name) else table
                found.append((f"{path.relative_to(ROOT)}:{call.lineno}", ast.literal_eval(table)))
    return found


def _values(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize(("place", "texts"), _texts(), ids=lambda part: part if isinstance(part, str) else "")
def test_both_languages_say_a_text_with_the_same_values(place, texts):
    for key, (english, chinese) in texts.items():
        assert english, f"{place} {key} has no English text"
        assert chinese, f"{place} {key} has no Chinese text"
        own = IN_UNITS_OF_ITS_OWN.get(key, (set(), set()))
        assert _values(english) - own[0] == _values(chinese) - own[1], f"{place} {key}"


def test_a_text_is_given_in_the_language_that_is_asked_for():
    texts = Texts({"late": ("{count} runs late", "{count} 次运行迟到")})
    assert (texts("en", "late", count=2), texts("zh", "late", count=2)) == ("2 runs late", "2 次运行迟到")


def test_a_text_is_never_given_with_a_value_left_open():
    texts = Texts({"late": ("{count} runs late", "{count} 次运行迟到")})
    with pytest.raises(KeyError):
        texts("zh", "late")
    with pytest.raises(KeyError):
        texts("en", "early")
