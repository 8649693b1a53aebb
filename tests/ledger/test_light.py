"""Deciding and auditing start without torch, prefect or langchain."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROBE = (
    "import sys, importlib; importlib.import_module(sys.argv[1]);"
    "print([m for m in ('torch','prefect','langchain','transformers','alembic','pandas') if m in sys.modules])"
)


@pytest.mark.parametrize("module", ["flows.ledger", "flows.state", "flows.decide", "flows.gatefiles", "flows.audit"])
def test_it_imports_nothing_heavy(module: str):
    answer = subprocess.run([sys.executable, "-c", PROBE, module], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
