"""The house has four floors: imports go down only, and light commands stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLOORS = ("specs", "tasks", "agents", "flows")
POSIX_ONLY = {"fcntl", "grp", "pwd", "pty", "resource", "spwd", "syslog", "termios", "tty", "posix", "crypt"}
HEAVY = {"torch", "prefect", "langchain", "langchain_core", "langgraph", "transformers", "peft", "accelerate"}
MODULES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))
NAMES = [p.relative_to(ROOT).as_posix() for p in MODULES]
WORKERS = ("tasks/training/", "tasks/evaluate/", "tasks/memory/", "tasks/models/", "tasks/worker_side.py")
"""Parts of `tasks` that run in processes of their own, where torch may be imported at once."""


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module named by an import statement below `tree`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def at_import_time(tree: ast.Module) -> Iterator[str]:
    """Modules imported when the module is: not inside functions, not under TYPE_CHECKING, not as a program."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and (
            "TYPE_CHECKING" in ast.unparse(node.test) or "__main__" in ast.unparse(node.test)
        ):
            continue
        if isinstance(node, ast.ClassDef):
            continue
        yield from imported(node)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_imports_go_down_only(name: str):
    above = FLOORS[FLOORS.index(name.split("/")[0]) + 1 :]
    upward = [module for module in imported(parsed(ROOT / name)) if module.split(".")[0] in above]
    assert upward == [], f"{name} imports from a floor above it"
    relative = [n for n in ast.walk(parsed(ROOT / name)) if isinstance(n, ast.ImportFrom) and n.level]
    assert relative == [], f"{name} hides its imports behind dots"


def test_nothing_that_ships_imports_the_tests():
    assert not [n for n in NAMES if any(m.split(".")[0] == "tests" for m in imported(parsed(ROOT / n)))]


def test_specs_knows_neither_torch_nor_prefect_nor_langchain():
    for name in NAMES:
        if name.startswith("specs/"):
            found = {m.split(".")[0] for m in imported(parsed(ROOT / name))} & HEAVY
            assert not found, f"{name} imports {found}"


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(WORKERS)])
def test_no_posix_only_module_is_needed_to_import_it(name: str):
    found = {m.split(".")[0] for m in at_import_time(parsed(ROOT / name))} & POSIX_ONLY
    assert not found, f"{name} imports {found} at module level"


def test_no_two_modules_import_each_other():
    edges = {}
    known = {n.removesuffix(".py").removesuffix("/__init__").replace("/", "."): n for n in NAMES}
    for module, name in known.items():
        tree = parsed(ROOT / name)
        wanted = set(at_import_time(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module in wanted:
                wanted |= {f"{node.module}.{alias.name}" for alias in node.names}
        edges[module] = {w for w in wanted if w in known and w != module}
    mutual = sorted((a, b) for a in edges for b in edges[a] if a in edges.get(b, set()) and a < b)
    mutual = [(a, b) for a, b in mutual if not (a.startswith(b + ".") or b.startswith(a + "."))]
    assert mutual == []


def loads(code: str) -> set[str]:
    """Names of the heavy packages that a Python program has loaded at its end."""
    program = f"{code}\nimport sys\nprint(sorted(set({sorted(HEAVY)!r}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return set(ast.literal_eval(done.stdout.splitlines()[-1]))


def test_every_module_of_specs_and_the_planning_of_agents_load_light():
    modules = [n.removesuffix(".py").replace("/", ".") for n in NAMES if n.startswith(("specs/", "agents/"))]
    modules = [m.removesuffix(".__init__") for m in modules]
    assert loads("\n".join(f"import {m}" for m in modules)) == set()


@pytest.mark.parametrize(
    "words", [["--help"], ["status", "--help"], ["approve", "--help"], ["audit", "--help"], ["schema"], ["--version"]]
)
def test_light_commands_load_neither_torch_nor_prefect_nor_langchain(words: list[str]):
    code = f"""
import sys
sys.argv = ["gatewright", *{words!r}]
from flows.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
    assert loads(code) == set()


def test_importing_the_command_line_loads_nothing_heavy():
    assert loads("import flows.cli") == set()
