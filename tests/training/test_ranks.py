"""Several ranks train what one rank would, stop and end together, and resume bit for bit, wherever they are cut off."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.samples import write_samples
from tests.training.kill_matrix import Matrix, matrix_training

pytestmark = pytest.mark.skipif(os.name == "nt", reason="training on Windows is by WSL2")

SEED = 31


def two_ranks(**changes):
    """41 samples, 8 a step: the last step of an epoch has one sample, and rank 1 none of it."""
    return matrix_training(**{"ranks": 2, "micro_batch": 2, "gradient_accumulation": 4, **changes})


@pytest.fixture(scope="module")
def matrix(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """The trainings of two ranks that the others are compared with."""
    folder = tmp_path_factory.mktemp("ranks")
    return Matrix(folder, tiny_model, write_samples(folder / "samples.parquet", tiny_model, count=49), two_ranks())


def test_each_sample_is_fed_once_by_one_of_the_ranks_and_the_log_is_in_the_order_of_the_plan(matrix):
    fed = [json.loads(line) for line in (matrix.reference / "micro_batches.jsonl").read_text().splitlines()]
    assert [(f["step"], f["micro_batch"], f["rank"]) for f in fed] == sorted(
        (f["step"], f["micro_batch"], f["rank"]) for f in fed
    )
    census = [json.loads(line) for line in (matrix.reference / "census.jsonl").read_text().splitlines()]
    assert next(c["fed"] for c in census) == 41
    assert {f["rank"] for f in fed} == {0, 1}
