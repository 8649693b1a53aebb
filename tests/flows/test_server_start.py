"""Servers of several homes, and several starts of one home, at the same time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

START = """
import sys
from flows import server
started = server.up(int(sys.argv[1]))
print(started.model_dump_json(), server.admits(started.api_url))
"""


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "GATEWRIGHT_HOME": str(home)}


def _start(home: Path, port: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", START, str(port)]
    return subprocess.Popen(words, env=_environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    record, admitted = out.rsplit(maxsplit=1)
    assert admitted == "True"
    started: dict[str, Any] = json.loads(record)
    return started


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[list[Path]]:
    """Two homes; what was started in them is stopped at the end."""
    made = [tmp_path / "one", tmp_path / "two"]
    yield made
    for home in made:
        down = "from flows import server; server.down()"
        subprocess.run([sys.executable, "-c", down], env=_environment(home), check=True, timeout=60)


@pytest.mark.slow
def test_homes_that_start_at_once_on_one_port_each_get_a_server_that_takes_their_password(homes: list[Path]):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    first, second, twice = [
        _outcome(p) for p in [_start(homes[0], port), _start(homes[1], port), _start(homes[1], port)]
    ]
    assert first["port"] != second["port"]
    assert second == twice, "two starts of one home begin one server"
