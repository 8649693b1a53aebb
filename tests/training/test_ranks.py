"""Several ranks stop, fail and end together, and resume bit for bit, wherever one of them is cut off.

That two ranks train what one would is in `test_batches.py`; forty moments are in `benchmarks/kill_resume.py --ranks 2`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specs.errors import ModelError, TrainingError
from tasks.data.batch_plan import plan_batches
from tasks.training.feed import Feed, group_steps
from tasks.training.models import check_possible
from tasks.training.ranks import Ranks, Seat, buckets
from tasks.verify.training_logs import order_mismatches
from tests.support.forked import Ended, train
from tests.support.samples import make_job, small_training, write_samples
from tests.training.kill_matrix import Matrix, differences, matrix_training

pytestmark = pytest.mark.skipif(os.name == "nt", reason="training on Windows is by WSL2")

FAULTY = "tests.training.faulty_workers"
SEED = 31


def two_ranks(**changes):
    return small_training(**{"ranks": 2, "micro_batch": 1, "gradient_accumulation": 6, "max_steps": 3, **changes})


@pytest.fixture
def faulty(job_in: Callable[..., Path], tmp_path: Path) -> Callable[..., Ended]:
    """Trains two ranks, one of them with a fault at step 2."""

    def run(kind: str, rank: int = 1, **job) -> Ended:
        path = job_in(tmp_path, two_ranks(), **job)
        (tmp_path / "fault.json").write_text(json.dumps({"kind": kind, "step": 2, "rank": rank}))
        return train(path, FAULTY)

    return run


def lines(folder: Path, name: str = "micro_batches.jsonl") -> list[dict]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


# -- the plan is the only source of order

plans = st.tuples(st.integers(1, 40), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))


@given(plans)
def test_the_ranks_share_the_plan_and_nothing_else(shape):
    samples, micro_batch, per_rank, ranks = shape
    training = small_training(
        micro_batch=micro_batch, gradient_accumulation=per_rank * ranks, ranks=ranks, max_steps=None, epochs=1
    )
    rows = plan_batches([(f"s{i}", 5 + i % 7) for i in range(samples)], training)
    steps = group_steps(rows, ranks)
    shares = [[b for step in steps for b in step.of(rank)] for rank in range(ranks)]
    assert sum(len(share) for share in shares) == sum(len(step.micro_batches) for step in steps)
    fed = sorted(i for share in shares for batch in share for i in batch.sample_ids)
    assert fed == sorted(row.sample_id for row in rows)
    for step in steps:
        assert all(len(step.of(rank)) in (step.rounds, step.rounds - 1) for rank in range(ranks))


def test_a_plan_for_another_number_of_ranks_is_refused():
    rows = plan_batches([(f"s{i}", 5) for i in range(12)], two_ranks())
    assert len(group_steps(rows, 2)) == 3
    with pytest.raises(TrainingError, match="dealt to 1 ranks in turn"):
        group_steps(rows, 1)


def test_a_rank_without_a_micro_batch_in_a_step_is_fed_nothing_there():
    steps = group_steps(plan_batches([(f"s{i}", 5) for i in range(7)], two_ranks(max_steps=None, epochs=1)), 2)
    assert [len(step.of(1)) for step in steps] == [3, 0]
    fed = list(Feed(steps, {}, 0, start=1, rank=1))
    assert (fed[0].micro_batches, fed[0].learnt_tokens) == ((), 0)


def test_a_micro_batch_that_another_rank_was_fed_is_out_of_order():
    planned = [{"step": 1, "micro_batch": 0, "rank": rank, "sample_id": f"s{rank}"} for rank in (0, 1)]
    fed = [{"step": 1, "micro_batch": 0, "rank": rank, "sample_ids": [f"s{rank}"]} for rank in (0, 1)]
    assert order_mismatches(planned, fed).value == 0
    assert order_mismatches(planned, [fed[0] | {"rank": 1}, fed[1] | {"rank": 0}]).value == 2
    assert order_mismatches(planned, fed[::-1]).value == 2


# -- the sum of gradients

sizes = st.lists(st.tuples(st.integers(1, 40), st.sampled_from([torch.float32, torch.bfloat16])), max_size=12)


@given(sizes, st.integers(1, 200))
def test_buckets_hold_every_gradient_once_in_order_and_are_of_one_type(found, most_bytes):
    tensors = [torch.full((n,), float(k), dtype=dtype) for k, (n, dtype) in enumerate(found)]
    parts = list(buckets(tensors, most_bytes))
    assert [t.data_ptr() for part in parts for t in part] == [t.data_ptr() for t in tensors]
    for part in parts:
        assert len({t.dtype for t in part}) == 1
        assert len(part) == 1 or sum(t.numel() * t.element_size() for t in part) <= most_bytes


def test_one_rank_asks_nobody():
    alone, parameter = Ranks(), torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.full((2,), 3.0)
    alone.sum_gradients([parameter])
    assert parameter.grad.tolist() == [3.0, 3.0]
    assert (alone.any(True), alone.total(7), alone.gather("x"), alone.from_first(1)) == (True, 7, ["x"], 1)
    assert Seat.read([]) == Seat(0, None)


# -- what one rank finds ends all of them


@pytest.mark.parametrize("scheme", ["zero1", "zero2", "zero3", "fsdp"])
def test_a_scheme_that_no_worker_trains_is_refused_by_name(scheme):
    with pytest.raises(ModelError, match=f"sharding {scheme} is predicted"):
        check_possible(two_ranks(sharding=scheme), "cpu")


def test_a_loss_that_is_not_finite_on_one_rank_ends_all_before_any_optimizer_moves(faulty, tmp_path):
    ended = faulty("nan")
    assert ended.code == 1
    error = ended.error()
    assert error["class"] == "NotFinite"
    assert error["message"].startswith("step 2: the loss is nan on rank 1; its samples are ")
    assert (tmp_path / "before.txt").read_text() == (tmp_path / "after.txt").read_text()
    planned = [row for row in plan_of(tmp_path) if row["step"] == 2 and row["rank"] == 1]
    assert all(row["sample_id"] in error["message"] for row in planned)


def plan_of(folder: Path) -> list[dict]:
    import pyarrow.parquet as pq

    return pq.read_table(folder / "batch_plan.parquet").to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("inf_gradient", "the ranks do not have the same gradient"),
        ("drift", "after step 2 the ranks do not hold the same weights"),
        ("kill_in_step", "rank 1 of 2 of the worker of tests.training was killed"),
    ],
)
def test_a_rank_that_goes_its_own_way_or_dies_ends_all_and_is_named(kind, words, faulty):
    ended = faulty(kind)
    assert ended.code == 1
    assert words in ended.error()["message"]


@pytest.mark.slow
def test_a_rank_that_hangs_is_waited_for_only_so_long(faulty):
    ended = faulty("hang_in_step", collective_timeout_s=3)
    assert ended.code == 1
    assert ended.error()["class"] == "PeerLost"
    assert "rank 0 of 2 lost the others" in ended.error()["message"]


# -- resume


@pytest.fixture(scope="module")
def straight(tiny_model: Path, samples_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks that nobody interrupted."""
    folder = tmp_path_factory.mktemp("straight ranks")
    (folder / "samples.parquet").write_bytes(samples_file.read_bytes())
    assert train(make_job(folder, tiny_model, two_ranks(max_steps=6))).code == 0
    return folder / "out"


@pytest.mark.parametrize(("kind", "code", "step"), [("kill_in_step", 1, 5), ("stop_in_step", 130, 4)])
def test_a_rank_cut_off_in_a_step_is_resumed_with_the_same_bits(kind, code, step, straight, job_in, tmp_path):
    """Killed it loses what was not saved; asked to stop, it stops the other rank in the same step, with one save."""
    job = job_in(tmp_path, two_ranks(max_steps=6), probe_sample_ids=[])
    (tmp_path / "fault.json").write_text(json.dumps({"kind": kind, "step": step, "rank": 1}))
    ended = train(job, FAULTY)
    assert ended.code == code
    if kind == "stop_in_step":
        assert ended.error()["class"] == "Stopped"
        said = ended.error()["message"]
        assert said.startswith("stopped on request (SIGTERM at rank 1) after step 3 of 6 (step 4 had begun; ")
        assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir() if p.is_dir()) == ["00000002", "00000003"]
    assert train(job).code == 0
    assert differences(straight, tmp_path / "out") == ""


@pytest.fixture(scope="module")
def matrix(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """Two ranks; 41 samples, 8 a step: the last step of an epoch has one sample, and rank 1 none of it."""
    folder = tmp_path_factory.mktemp("ranks")
    samples = write_samples(folder / "samples.parquet", tiny_model, count=49)
    training = matrix_training(ranks=2, micro_batch=2, gradient_accumulation=4)
    return Matrix(folder, tiny_model, samples, training)


@pytest.mark.slow
def test_what_the_ranks_were_fed_is_logged_once_and_in_the_order_of_the_plan(matrix):
    fed = lines(matrix.reference)
    places = [(f["step"], f["micro_batch"], f["rank"]) for f in fed]
    assert places == sorted(set(places))
    assert {f["rank"] for f in fed} == {0, 1}
    assert lines(matrix.reference, "census.jsonl")[0]["fed"] == 41
    peaks = [(m["phase"], m["step"], m["rank"]) for m in lines(matrix.reference, "memory.jsonl")]
    assert [p for p in peaks if p[0] == "save"][:2] == [("save", 3, 0), ("save", 3, 1)]
    assert all(len(m["memory_bytes_by_rank"]) == 2 for m in lines(matrix.reference, "metrics.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGTERM"])
def test_cut_off_at_any_rank_it_ends_with_the_same_bits(signal_name, matrix):
    found = {str(moment): matrix.run(moment) for moment in matrix.draw_ranks(signal_name, 3, SEED)}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.slow
def test_random_numbers_of_rank_0_on_every_rank_are_noticed_on_resume(matrix):
    """What radixark/miles #3187 and NVIDIA-NeMo/Automodel #3437 repair: another dropout after a resume, in silence."""
    job = matrix.other_job("random of rank 0", matrix.training)
    (job.parent / "fault.json").write_text(json.dumps({"kind": "random_of_rank_0", "step": 0}))
    ended = train(job, FAULTY)
    assert ended.code == 6
    assert "the resumed training does not continue the curve" in ended.error()["message"]


@pytest.mark.slow
def test_a_save_that_fails_on_rank_0_leaves_no_rank_waiting(faulty):
    """What hangs others until a watchdog fires (NVIDIA/Model-Optimizer #1330, transformers #28270)."""
    ended = faulty("disk_full")
    assert ended.code == 1
    assert ended.error()["class"] == "StorageError"
    assert "no space for" in ended.error()["message"]


@pytest.mark.slow
def test_another_layout_is_refused_with_a_table(matrix, tmp_path):
    job = matrix.other_job("other layout", matrix_training(ranks=1, micro_batch=2, gradient_accumulation=4))
    ended = train(job)
    assert ended.code == 6
    table = [line.split() for line in ended.error()["message"].splitlines()[1:]]
    assert ["training.ranks", "2", "1"] in table
    assert ["processes", "2", "1"] in table
