"""Bad input never shows a traceback: a message that says what and where, a way out, and the exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import Answer, gatewright

SPEC = """\
project: small
base_model: {model}
sources:
  - kind: work_orders
    path: raw/orders.csv
    columns: {{phenomenon: Problem, repair: Repair}}
"""
ROWS = "Problem,Repair\nspindle noisy at 8000 rpm,replaced the front bearing\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project that is good until a test breaks it."""
    folder = tmp_path / "small"
    (folder / "raw").mkdir(parents=True)
    (folder / "project.yaml").write_text(SPEC.format(model="package:gatewright-tiny"), encoding="utf-8")
    (folder / "raw/orders.csv").write_text(ROWS, encoding="utf-8")
    return folder


def refused(project: Path, command: str = "check") -> Answer:
    answer = gatewright(command, ".", "--json", cwd=project)
    assert answer.code == 2, answer.out
    assert answer.json["error"]["exit_code"] == 2
    return answer


def test_the_small_project_is_good(project: Path) -> None:
    answer = gatewright("check", ".", "--json", cwd=project)
    assert answer.code == 0, answer.err


def test_a_missing_file_is_named_with_its_line_and_a_run_does_not_start(project: Path) -> None:
    (project / "raw/orders.csv").unlink()
    for command in ("check", "run"):
        answer = refused(project, command)
        assert "raw/orders.csv" in answer.err
        assert "project.yaml:" in answer.err
    assert not (project / "runs").exists()


def test_an_empty_table_is_an_error(project: Path) -> None:
    (project / "raw/orders.csv").write_text("", encoding="utf-8")
    assert "orders.csv" in refused(project).err
    (project / "raw/orders.csv").write_text("Problem,Repair\n", encoding="utf-8")
    assert "orders.csv" in refused(project).err


def test_a_wrong_encoding_is_an_error_that_names_the_file(project: Path) -> None:
    (project / "raw/orders.csv").write_bytes("Problem,Repair\n主轴异响,更换轴承\n".encode("gb18030"))
    text = (project / "project.yaml").read_text(encoding="utf-8").replace("path:", "encoding: utf-8\n    path:")
    (project / "project.yaml").write_text(text, encoding="utf-8")
    answer = refused(project)
    assert "orders.csv" in answer.err
    assert "utf-8" in answer.err.lower()


def test_an_unknown_key_names_the_nearest_known_one(project: Path) -> None:
    with (project / "project.yaml").open("a", encoding="utf-8") as file:
        file.write("acceptence: {}\n")
    answer = refused(project)
    assert "acceptence" in answer.err
    assert "acceptance" in answer.err
    assert "project.yaml:7" in answer.err


def test_a_column_mapped_to_nothing_names_the_near_columns(project: Path) -> None:
    text = (project / "project.yaml").read_text(encoding="utf-8").replace("Problem", "Problems")
    (project / "project.yaml").write_text(text, encoding="utf-8")
    answer = refused(project)
    assert "Problems" in answer.err
    assert "Problem" in answer.err.replace("Problems", "")


def test_a_model_folder_without_weights_is_an_error_with_a_way_out(project: Path) -> None:
    (project / "model").mkdir()
    (project / "model/config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    (project / "project.yaml").write_text(SPEC.format(model="model"), encoding="utf-8")
    answer = refused(project)
    assert "weights" in answer.err
    assert "safetensors" in answer.err


def test_all_problems_come_at_once(project: Path) -> None:
    text = SPEC.format(model="package:nothing").replace("project: small", "project: Small Project\nlanguage: fr")
    (project / "project.yaml").write_text(text, encoding="utf-8")
    answer = refused(project)
    paths = {problem["path"] for problem in answer.json["error"]["problems"]}
    assert {"project", "language"} <= paths


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are set the POSIX way")
def test_a_full_disk_is_said_in_words(project: Path) -> None:
    limit = "import resource,runpy,sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000));"
    limit += "sys.argv=['gatewright','init','big','--example','cnc-repair'];"
    limit += "runpy.run_module('flows.cli', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", limit], cwd=project, capture_output=True, text=True, env=dict(os.environ), timeout=60
    )
    assert done.returncode == 1, done.stderr
    assert "no space left" in done.stderr
    assert "Traceback" not in done.stderr
    assert "way out" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("approve", "--as", "me"),
        ("resume",),
        ("review",),
        ("audit", "verify"),
        ("verify", "nothing"),
        ("run", "nowhere"),
        ("run", ".", "--until", "nothing"),
        ("run", ".", "--run-id", "../up"),
        ("stage", "nothing", "."),
        ("stage", "train", "."),
        ("estimate", "--model", "no-such-model"),
        ("estimate", "--model", "llama-2-7b", "--method", "magic"),
        ("init", "."),
        ("init", "new", "--example", "nothing"),
        ("init", "new", "--lang", "fr"),
    ],
)
def test_every_command_refuses_what_it_cannot_use_with_exit_code_2(project: Path, words: tuple[str, ...]) -> None:
    answer = gatewright(*words, "--json", cwd=project)
    assert answer.code == 2, (answer.out, answer.err)
    assert answer.json["error"]["message"]
    assert answer.json["error"]["hint"]
