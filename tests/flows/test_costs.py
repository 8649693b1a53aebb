"""What work took is kept in the home, and teaches only what is of this machine and was counted alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows import costs
from specs.costs import COUNTING, Took
from specs.parameters import TrainingConfiguration
from specs.proposals import Proposal
from tasks.models.resolve import ResolvedModel
from tasks.processor import Meter
from tests.agents.proposer_cases import write_model


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GATEWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(costs, "machine", lambda: "here")
    return tmp_path / "home"


def took(wall_s: float = 2.0, **more: Any) -> Took:
    values = {"kind": "stage", "stage": "data", "work": {"rows": 5.0}, "device": "here", "counting": COUNTING, **more}
    return Took(wall_s=wall_s, **values)


def test_what_was_kept_comes_back_newest_first():
    assert costs.remember([took(1), took(2)]) == ""
    assert costs.remember([took(3)]) == ""
    assert ([t.wall_s for t in costs.remembered()[0]], costs.remembered()[1]) == ([3, 2, 1], 0)


def test_another_machine_another_counting_and_a_later_version_teach_nothing():
    costs.remember([took(1, device="there"), took(2, counting=COUNTING - 1), took(3)])
    with costs.costs_file().open("a", encoding="utf-8") as file:
        line = {**took(4).model_dump(mode="json"), "version": costs.VERSION + 1, "new": 1}
        file.write(json.dumps({"version": costs.VERSION + 1, "shape": "another"}) + "\n" + json.dumps(line) + "\n")
    assert ([t.wall_s for t in costs.remembered()[0]], costs.remembered()[1]) == ([3], 0)


def test_lines_that_cannot_be_read_are_counted_and_hide_no_others():
    costs.remember([took(1)])
    with costs.costs_file().open("ab") as file:
        file.write(b'{"version": 1, "wall_s": \n\xff\xfe\n[]\n7\n{"version": "x"}\n\n{"cut off')
    costs.remember([took(2)])
    assert ([t.wall_s for t in costs.remembered()[0]], costs.remembered()[1]) == ([2, 1], 6)


def test_the_file_stays_short_and_keeps_the_newest():
    costs.remember([took(1)] * costs.MOST)
    costs.remember([took(5)])
    assert len(costs.costs_file().read_bytes().splitlines()) == costs.KEPT
    assert costs.remembered()[0][0].wall_s == 5
    assert len(costs.remembered()[0]) == costs.READ


def test_a_home_that_cannot_be_written_loses_no_stage_and_says_so(home: Path):
    home.write_text("a file where a folder should be", encoding="utf-8")
    assert "costs.jsonl cannot be written" in costs.remember([took()])
    assert costs.remembered() == ([], 0)


def steps(artifacts: Path, count: int, **more: Any) -> None:
    artifacts.mkdir(exist_ok=True)
    lines = [
        {"step": n, "seconds": 0.1 * n, "padded_tokens": 100 * n, "cpu_seconds": 0.15 * n, "samples": 2 * n, **more}
        for n in range(1, count + 1)
    ]
    (artifacts / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    fed = [{"step": n, "micro_batch": k, "rank": r} for n in range(1, count + 1) for k in (0, 1) for r in (0, 1)]
    (artifacts / "micro_batches.jsonl").write_text("".join(json.dumps(line) + "\n" for line in fed))
    (artifacts / "sessions.jsonl").write_text('{"session": 1, "from_step": 0}\n{"session": 2, "from_step": 5}\n')


def test_steps_are_kept_in_a_light_and_a_heavy_piece_without_those_that_begin_a_session(tmp_path: Path):
    model = write_model(tmp_path / "m", 1000)
    steps(tmp_path / "a", 10)
    light, heavy = costs.steps_of(tmp_path / "a", model, TrainingConfiguration())
    assert light["work"] == {"micro_batches": 8, "operations": 6 * 1000 * 100 * (2 + 3 + 4 + 5)}
    assert heavy["work"] == {"micro_batches": 8, "operations": 6 * 1000 * 100 * (7 + 8 + 9 + 10)}
    assert (light["wall_s"], heavy["cpu_s"]) == (pytest.approx(1.4), pytest.approx(5.1))
    assert heavy["cores"] == pytest.approx(1.5)


def test_files_that_cannot_be_read_lose_no_stage_and_say_why_its_times_are_unknown(tmp_path: Path):
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "metrics.jsonl").write_text('{"step": 1, "seconds"', encoding="utf-8")
    model = ResolvedModel(
        folder=write_model(tmp_path / "m", 1000), sha256="a" * 64, source="m", revision="r", licence="none"
    )
    parameters = {"training": TrainingConfiguration().model_dump(mode="json")}
    proposal = Proposal(stage="train", round=1, parameters=parameters, reasons=[], proposer="rules")
    with Meter() as meter:
        pass
    for language, said in (("en", "cannot be read from its files (ValueError"), ("zh", "用时（ValueError")):
        took, why = costs.took_and_why_not(proposal, tmp_path, meter, model, language, whole=True)
        assert took == []
        assert said in why[0]


def test_few_steps_and_steps_without_processor_time_claim_no_more_than_they_know(tmp_path: Path):
    model = write_model(tmp_path / "m", 1000)
    steps(tmp_path / "a", 4)
    assert list(costs.steps_of(tmp_path / "a", model, TrainingConfiguration())) == []
    steps(tmp_path / "a", 10, cpu_seconds=None)
    assert all("cpu_s" not in piece for piece in costs.steps_of(tmp_path / "a", model, TrainingConfiguration()))
