"""A wheel carries every file that the four floors and the examples need, and nothing that was compiled."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = ("specs", "tasks", "agents", "flows", "examples")


@pytest.mark.slow
def test_a_wheel_carries_code_and_data(tmp_path: Path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in SHIPPED:
        shutil.copytree(ROOT / name, tree / name)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tree / name)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, tree], check=True)
    inside = set(zipfile.ZipFile(next(tmp_path.glob("gatewright-*.whl"))).namelist())
    files = {p.relative_to(tree).as_posix() for name in SHIPPED for p in (tree / name).rglob("*") if p.is_file()}
    wanted = {name for name in files if "__pycache__" not in name}
    assert wanted <= inside
    assert not [name for name in inside if name.endswith(".pyc")]
    assert {"py.typed", "project.yaml", "work_orders.xlsx"} <= {name.rpartition("/")[2] for name in inside}
