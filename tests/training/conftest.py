"""Fixtures of the training tests: a finished training that others are compared with."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.forked import train
from tests.support.samples import make_job, training_samples, write_samples


@pytest.fixture(scope="session")
def samples_file(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples that every training of these tests uses."""
    return write_samples(tmp_path_factory.mktemp("samples") / "samples.parquet", tiny_model)


@pytest.fixture
def job_in(tiny_model: Path, samples_file: Path) -> Callable[..., Path]:
    """Makes a job on the common samples in a folder."""

    def make(folder: Path, *args, **changes) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "samples.parquet").write_bytes(samples_file.read_bytes())
        held_out = [i for i, _ in training_samples(samples_file, "eval")]
        return make_job(folder, tiny_model, *args, **{"probe_sample_ids": held_out[:4], **changes})

    return make


@pytest.fixture(scope="session")
def uninterrupted(tiny_model: Path, samples_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output of the common job trained without any interruption."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    (folder / "samples.parquet").write_bytes(samples_file.read_bytes())
    held_out = [i for i, _ in training_samples(samples_file, "eval")]
    job = make_job(folder, tiny_model, probe_sample_ids=held_out[:4])
    assert train(job).code == 0
    return folder / "out"


@pytest.fixture(scope="session")
def killed_folder(tiny_model: Path, samples_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the common job left when it was killed after step 5: checkpoints of steps 2 and 4."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "samples.parquet").write_bytes(samples_file.read_bytes())
    held_out = [i for i, _ in training_samples(samples_file, "eval")]
    job = make_job(folder, tiny_model, probe_sample_ids=held_out[:4], kill_after_step=5)
    assert train(job).code < 0
    return folder


@pytest.fixture
def killed(job_in: Callable[..., Path], killed_folder: Path) -> Callable[..., Path]:
    """Makes a job in a folder, in the state in which the kill left it."""

    def make(folder: Path, **changes) -> Path:
        for name in ("out", "checkpoints"):
            shutil.copytree(killed_folder / name, folder / name)
        return job_in(folder, **changes)

    return make
