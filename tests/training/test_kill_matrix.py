"""Cut off anywhere, by a kill or a signal, a training is resumed and ends with the same bits.

Six moments here, thirty in the long suite, two hundred and full fine-tuning in `benchmarks/kill_resume.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.training.kill_matrix import Matrix, matrix_training
from tests.training.moments import REGIONS

pytestmark = pytest.mark.skipif(os.name == "nt", reason="training on Windows is by WSL2")

SEED = 20


@pytest.fixture(scope="module")
def matrix(tiny_model: Path, samples_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """The trainings that the others are compared with."""
    return Matrix(tmp_path_factory.mktemp("matrix"), tiny_model, samples_file, matrix_training())


def test_every_region_has_moments(matrix):
    for found in matrix.counts.values():
        assert found.keys() == REGIONS.keys()
        assert min(found.values()) > 100


@pytest.mark.parametrize(
    ("signal_name", "region", "nth"),
    [
        ("SIGKILL", "steps", 0),
        ("SIGKILL", "saving", 1),
        ("SIGKILL", "epoch ends", 0),
        ("SIGTERM", "loading", 1),
        ("SIGTERM", "steps", 1),
        ("SIGTERM", "evaluation", 0),
    ],
)
def test_cut_off_at_a_moment_it_ends_with_the_same_bits(signal_name, region, nth, matrix):
    moment = list(matrix.draw(signal_name, {region: 2}, SEED))[nth]
    assert matrix.run(moment) == ""


@pytest.mark.slow
@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize("region", list(REGIONS))
def test_cut_off_at_more_moments_it_ends_with_the_same_bits(region, signal_name, matrix):
    found = {str(moment): matrix.run(moment) for moment in matrix.draw(signal_name, {region: 3}, SEED + 1)}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
