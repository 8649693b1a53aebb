"""The digest of a model is that of its bytes now, though a file that nobody wrote is read once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tasks.models import folder
from tasks.models.folder import digest_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder whose files were written long enough ago."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def test_a_file_that_nobody_wrote_is_read_once(model, monkeypatch):
    read: list[Path] = []
    real = folder.sha256_file
    monkeypatch.setattr(folder, "sha256_file", lambda path: (read.append(path), real(path))[1])
    monkeypatch.setattr(folder, "SETTLED_NS", -1)
    first = digest_model(model)
    assert digest_model(model) == first
    assert len(read) == 2


@pytest.mark.parametrize("settled_ns", [folder.SETTLED_NS, 0], ids=["at once", "settled"])
def test_every_change_changes_the_digest_even_with_its_old_times(model, monkeypatch, settled_ns):
    monkeypatch.setattr(folder, "SETTLED_NS", settled_ns)
    weights = model / "model.safetensors"
    first, times = digest_model(model), weights.stat()
    time.sleep(0.02)  # a tick of the file system's clock
    weights.write_bytes(b"Weights")
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert digest_model(model) != first
    weights.write_bytes(b"weights")
    assert digest_model(model) == first
