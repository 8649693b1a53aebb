"""A spike is judged by a window that wild values do not move, is always recorded, and does what was asked."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.canonical import sha256_file
from tasks.data.batch_plan import read_plan
from tasks.training.spikes import FEWEST, FLOOR_NATS, SpikeWindow, accepted_losses, passed_over_steps
from tests.support.forked import Ended, train
from tests.support.samples import small_training

FAULTY = "tests.training.faulty_workers"

losses = st.lists(st.floats(0.5, 3.0), min_size=FEWEST, max_size=80)


@given(losses)
def test_a_spike_never_raises_the_bar_for_the_next(found):
    window = SpikeWindow(found)
    before = window.threshold()
    assert before is not None
    assert window.is_spike(before + 1)
    assert window.threshold() == before


@given(losses)
def test_one_wild_loss_among_those_before_moves_the_bar_little(found):
    quiet, wild = SpikeWindow(found[:-1]), SpikeWindow([*found[:-1], 1e9])
    limit = quiet.threshold()
    if limit is not None:
        after = wild.threshold()
        assert after is not None
        assert after <= max(found) + 6 * 1.4826 * (max(found) - min(found)) + FLOOR_NATS


@given(losses)
def test_losses_that_only_fall_are_never_spikes(found):
    window = SpikeWindow()
    assert not any(window.is_spike(loss) for loss in sorted(found, reverse=True))


def test_too_few_steps_are_not_judged():
    window = SpikeWindow([1.0] * (FEWEST - 1))
    assert window.threshold() is None
    assert not window.is_spike(1e9)


def test_the_window_of_a_resumed_training_is_the_one_it_had():
    lines = [{"step": n, "loss": 1.0 + n / 100} for n in range(20)]
    lines[12] |= {"loss": 9.0, "spike": "noted"}
    straight = SpikeWindow()
    for line in lines:
        straight.is_spike(line["loss"])
    assert SpikeWindow(accepted_losses(lines)).threshold() == straight.threshold()


def test_a_roll_back_passes_over_every_step_from_its_checkpoint_to_the_spike():
    assert passed_over_steps([{"to_step": 8, "step": 10}, {"to_step": 20, "step": 21}]) == {9, 10, 21}


def spiking(job_in, folder: Path, action: str, **changes) -> tuple[Path, Ended]:
    training = small_training(spikes=action, max_steps=12, save_steps=4, keep_checkpoints=20)
    job = job_in(folder, training, save_at=[9, 10, 11], **changes)
    job.with_name("fault.json").write_text(json.dumps({"kind": "spike", "step": 10}))
    return job, train(job, FAULTY)


def metrics(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "out" / "metrics.jsonl").read_text().splitlines()]


def weights(folder: Path, step: int) -> str:
    return sha256_file(folder / "checkpoints" / f"{step:08d}" / "adapter_model.safetensors")


@pytest.mark.skipif(os.name == "nt", reason="training on Windows is by WSL2")
class TestInTraining:
    """The loss of step 10 is twenty times what it was."""

    @pytest.mark.parametrize(
        ("action", "word"), [("skip", "skipped"), pytest.param("note", "noted", marks=pytest.mark.slow)]
    )
    def test_a_spike_is_recorded_and_moves_the_weights_only_when_it_is_just_noted(self, action, word, job_in, tmp_path):
        _, ended = spiking(job_in, tmp_path, action)
        assert ended.code == 0
        spikes = [line for line in metrics(tmp_path) if line.get("spike")]
        assert [(line["step"], line["spike"]) for line in spikes] == [(10, word)]
        assert spikes[0]["loss"] > spikes[0]["spike_above"]
        assert (weights(tmp_path, 10) == weights(tmp_path, 9)) == (action == "skip")
        assert weights(tmp_path, 11) != weights(tmp_path, 10)

    @pytest.mark.slow
    @pytest.mark.parametrize("ranks", [1, 2])
    def test_a_roll_back_goes_on_from_the_newest_checkpoint_without_the_steps_between(self, ranks, job_in, tmp_path):
        shape = {"ranks": 2, "gradient_accumulation": 4} if ranks == 2 else {}
        training = small_training(
            spikes="roll_back", max_steps=12, save_steps=4, keep_checkpoints=20, epochs=3, **shape
        )
        job = job_in(tmp_path, training)
        job.with_name("fault.json").write_text(json.dumps({"kind": "spike", "step": 10}))
        ended = train(job, FAULTY)
        assert ended.code == 0
        lines = metrics(tmp_path)
        assert [line["step"] for line in lines] == list(range(1, 13))
        assert [line["step"] for line in lines if line.get("spike") == "passed over"] == [9, 10]
        assert ended.result()["resumed_from"] == 8

    @pytest.mark.slow
    def test_a_spike_that_ends_the_training_names_its_samples(self, job_in, tmp_path):
        _, ended = spiking(job_in, tmp_path, "stop")
        assert ended.code == 1
        assert "step 10: the loss is" in ended.error()["message"]
        planned = [row.sample_id for row in read_plan(tmp_path / "batch_plan.parquet") if row.step == 10]
        assert len(planned) == 6
        assert f"its samples are {', '.join(planned)};" in ended.error()["message"]
