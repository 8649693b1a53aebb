"""Real runs for the tests of the flow: a real Prefect server, the Chinese example, the tiny model, no shortcuts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from tests.support.cli import advance, gatewright


@pytest.fixture(scope="session")
def prefect_server(gatewright_home: Path) -> str:
    """A real server on loopback, which all workers share; tests/conftest.py stops it when they have ended."""
    from flows import server

    return server.up().api_url


@pytest.fixture(scope="session")
def before_train(
    prefect_server: str, tiny_model: Path, shared_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The Chinese example, run up to the open gate before train: made by the first worker that needs it, for all.

    To be copied only: a command in it would change its ledger under the copying of another worker.
    """
    project = shared_folder / "before-train" / "demo"
    with FileLock(shared_folder / "before-train.lock"):
        if not project.exists():
            made = run_to_train(tmp_path_factory.mktemp("run") / "demo")
            shutil.rmtree(project.parent, ignore_errors=True)
            shutil.copytree(made, project.parent / "partial")
            (project.parent / "partial").rename(project)
    return project


def run_to_train(project: Path) -> Path:
    """From raw files to the gate, approving what waits on the way."""
    made = gatewright("init", project, "--example", "cnc-repair", "--lang", "zh", cwd=project.parent)
    assert made.code == 0, made.err
    first = gatewright("run", ".", "--run-id", "first", "--json", cwd=project)
    assert first.code == 3, first.err
    stopped = advance(project, until_gate="train")
    assert stopped.code == 3, stopped.err
    return project


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Path], Path]:
    """A copy of a project, runs and ledger included: what a person gets who moves a project."""

    def copy(project: Path) -> Path:
        target = tmp_path / project.name
        shutil.copytree(project, target)
        return target

    return copy


@pytest.fixture(scope="session")
def finished(before_train: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run carried on to its end in a copy."""
    project = tmp_path_factory.mktemp("finished") / "demo"
    shutil.copytree(before_train, project)
    ended = advance(project)
    assert ended.code == 0, ended.err
    return project
