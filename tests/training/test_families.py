"""Ranks of one worker live and end together: one voice, one end, and the cause named instead of its consequences."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from specs.errors import ModelError, Stopped
from specs.stages import Quiet
from tasks.worker_ends import WorkerDied
from tasks.workers import run_worker
from tests.training.test_workers import LIGHT, Heard, gone

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


def run_ranks(folder: Path, *do: str, progress: Quiet | None = None, **more):
    job = folder / "job.json"
    job.write_text(json.dumps({"do": do}))
    return run_worker(LIGHT, job, folder / "log.txt", progress or Quiet(), ranks=len(do), left_s=0.5, **more)


def all_gone(folder: Path, count: int) -> bool:
    return all(gone(int((folder / f"pid{rank or ''}").read_text())) for rank in range(count))


def test_rank_0_speaks_for_all_and_each_rank_has_its_log(tmp_path):
    heard, events = Heard(), []
    result = run_ranks(tmp_path, "well", "well", progress=heard, on_event=events.append)
    assert result["environment"]["HF_HUB_OFFLINE"] == "1"
    assert (heard.words, events) == ([("work", 2), (2, "note")], [{"seen": 1}])
    assert "a library prints" in (tmp_path / "log.txt").read_text()
    assert "a library prints" in (tmp_path / "log-rank1.txt").read_text()


@pytest.mark.parametrize(("do", "rank"), [(("hang", "killed"), 1), (("killed", "hang"), 0), (("lost", "killed"), 1)])
def test_a_rank_that_is_killed_takes_the_others_down_and_is_named(do, rank, tmp_path):
    with pytest.raises(WorkerDied) as caught:
        run_ranks(tmp_path, *do)
    assert caught.value.signal_number == signal.SIGKILL
    assert f"rank {rank} of 2 of the worker of tests.support was killed" in caught.value.message
    assert "loading shard 3" in caught.value.hint
    assert all_gone(tmp_path, 2)


def test_the_rank_that_has_the_error_is_named_and_not_the_one_that_was_left_alone(tmp_path):
    with pytest.raises(ModelError) as caught:
        run_ranks(tmp_path, "lost", "user_error")
    assert caught.value.message == "rank 1 of 2: no weights"


def test_an_error_that_all_ranks_find_names_none_of_them(tmp_path):
    with pytest.raises(ModelError) as caught:
        run_ranks(tmp_path, "user_error", "user_error")
    assert caught.value.message == "no weights"


def test_a_stop_that_one_rank_hears_reaches_all_of_them(tmp_path):
    with pytest.raises(Stopped, match="all saved"):
        run_ranks(tmp_path, "wait", "signalled")
    assert (tmp_path / "saved").read_text() == "stop requested"
    assert all_gone(tmp_path, 2)
