"""Fixtures of the whole suite: the tiny bilingual model, built once per session and per worker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session", autouse=True)
def gatewright_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of its own, so that a test run neither sees nor leaves anything in the user's."""
    home = tmp_path_factory.mktemp("gatewright-home")
    os.environ["GATEWRIGHT_HOME"] = str(home)
    return home


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Local folder of the tiny bilingual model."""
    from tasks.models.tiny import build_tiny_model

    folder = tmp_path_factory.mktemp("models") / "tiny"
    build_tiny_model(folder)
    return folder
