"""The page on training: every public failure of its table has a test, and the table names all that were asked for."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
TESTS = ROOT / "tests" / "training"

ASKED = """
transformers #40690 #17032 #25956 #43708 #35782 #25129, ms-swift #10050 #226, verl #7401, datasets #7901, axolotl #406
#3401, alpaca-lora #72, LlamaFactory #7085 #2916, trl #3927 #3728 #2059 #1230, unsloth #2900, spd #677
"""


def rows() -> list[list[str]]:
    shown = re.search(r"failures:begin -->\n(.*?)<!--", PAGE, re.DOTALL)
    assert shown is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in shown[1].strip().splitlines()[2:]]


def runnable_in(name: str) -> set[str]:
    """Tests of a file that run somewhere: none that is always skipped."""
    tree = ast.parse((TESTS / name).read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {f.name for f in functions if not any("skip" in ast.unparse(d) for d in f.decorator_list)}


def test_every_test_that_the_table_of_failures_names_exists():
    named = [cell.strip("`").split("::") for row in rows() for cell in row[3:] if cell]
    assert len(named) > 20
    for file, test in named:
        assert test in runnable_in(file), f"{file} has no {test}"
    assert all(row[3] for row in rows())


def test_every_failure_that_was_asked_for_is_in_the_table_once():
    wanted = {
        (project, number)
        for project, numbers in re.findall(r"([\w-]+)((?:\s+#\d+)+)", ASKED)
        for number in numbers.split()
    }
    assert len(wanted) == 21
    found: list[tuple[str, str]] = []
    for row in rows():
        project = ""
        for name, number in re.findall(r"(?:([A-Za-z][\w-]*) (?:PR )?)?(#\d+)", row[0]):
            project = name or project
            found.append((project, number))
    assert sorted(found) == sorted(wanted)


def test_every_plain_trainer_shown_to_fail_is_in_the_table():
    shown = {row[4] for row in rows()}
    plain = {t for t in runnable_in("test_public_failures.py") if t.startswith("test_the_plain_trainer")}
    assert plain <= {cell.strip("`").partition("::")[2] for cell in shown}
