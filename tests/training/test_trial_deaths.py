"""A worker that dies in a small trial: what came of that setting, and of no other; said in words and in the records."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from specs.canonical import sha256_file
from specs.criteria import Metric
from specs.errors import OutOfMemory, StorageError
from specs.files import write_json, write_lines
from specs.stages import Quiet
from specs.trials import TrialParameters, TrialRecord, TrialsReport
from tasks import dry_run_trials
from tasks.dry_run_trials import Material, Place, make_trials, notes
from tasks.models.folder import digest_model
from tasks.pool import training_pool
from tasks.training.job import Job
from tasks.training.logbook import PROBES
from tasks.training.trial_ends import STARTED, begin, die, end_of, leave_out, was_cut_off
from tasks.training.trial_records import read_records
from tasks.training.trial_worker import Trials
from tasks.verify.trials import trial_metrics
from tasks.worker_ends import WorkerDied
from tests.support.forked import _CONTEXT, TIMEOUT_S
from tests.support.samples import small_training, training_samples

pytestmark = pytest.mark.skipif(os.name == "nt", reason="training on Windows is by WSL2")

TRIALS = TrialParameters(vary=["lr"], steps=4, repeats=2)


@dataclass(frozen=True)
class Made:
    """What trials left: their folder of artifacts, and the samples."""

    artifacts: Path
    samples: Path

    def report(self) -> TrialsReport:
        return TrialsReport.model_validate_json((self.artifacts / "trials.json").read_bytes())

    def records(self) -> dict[str, TrialRecord]:
        return {f"{r.name}-{r.seed}": r for r in read_records(self.artifacts / "trials.jsonl")}

    def faulty(self) -> Metric:
        training = small_training().model_dump(mode="json")
        parameters = {"training": training, "trials": TRIALS.model_dump(mode="json")}
        return trial_metrics([{"step": 1}], self.artifacts, self.samples, parameters)["trials_faulty"]


@pytest.fixture(scope="module")
def trials_with(tiny_model: Path, samples_file: Path, tmp_path_factory) -> Callable[..., Made]:
    """Makes the trials, the worker killed in those that are named."""

    def make(*doomed: str) -> Made:
        folder = tmp_path_factory.mktemp("trials")
        (folder / "work" / "small").mkdir(parents=True)
        (folder / "work" / "small" / "die.json").write_text(json.dumps(doomed))
        process = _CONTEXT.Process(target=_make, args=(str(folder), str(tiny_model), str(samples_file)))
        process.start()
        process.join(TIMEOUT_S)
        assert process.exitcode == 0
        return Made(folder / "artifacts", samples_file)

    return make


def _make(folder: str, model: str, samples: str) -> None:
    import tasks.workers
    from tests.support.family import fork

    tasks.workers.start_program = fork
    dry_run_trials.WORKER = "tests.training.dying_trials"
    make_trials(small_training(), TRIALS, material(Path(model), Path(samples)), None, place(Path(folder)), Quiet())


def place(folder: Path) -> Place:
    return Place(folder / "work", folder / "artifacts", folder / "trials.log")


def material(model: Path, samples: Path) -> Material:
    held_out = sorted(i for i, _ in training_samples(samples, "eval"))
    pool = training_pool(samples, small_training())
    return Material(model, digest_model(model), "small", pool, held_out[:4], "held-out", samples, sha256_file(samples))


@pytest.fixture(scope="module")
def one_died(trials_with) -> Made:
    return trials_with("lr-up-17")


def test_a_trial_whose_worker_is_killed_is_an_outcome_and_the_others_have_theirs(one_died):
    outcomes = {o.name: o for o in one_died.report().outcomes}
    assert outcomes["lr-up"].trend == "died"
    assert outcomes["lr-up"].cause is not None
    assert "was killed" in str(outcomes["lr-up"].cause.values["message"])
    assert outcomes["lr-down"].change is not None
    for language, word in (("en", "died"), ("zh", "中断")):
        assert any(word in note for note in notes(one_died.report(), language))
    assert not one_died.report().proposed


def test_every_trial_has_a_line_with_its_figures_and_the_other_seeds_of_the_dead_one_are_left_out(one_died):
    records = one_died.records()
    assert [(name, r.outcome, r.steps) for name, r in records.items()] == [
        ("base-17", "ended", 4),
        ("lr-down-17", "ended", 4),
        ("lr-up-17", "died", 1),
        ("base-18", "ended", 4),
        ("lr-down-18", "ended", 4),
        ("lr-up-18", "left_out", 0),
    ]
    assert [r.number for r in records.values()] == [1, 2, 3, 4, 5, 6]
    assert records["lr-down-17"].changes == {"lr": pytest.approx(small_training().lr / 3, rel=1e-2)}
    assert records["base-17"].changes == {}
    assert all((r.loss_after is not None) == (r.outcome == "ended") for r in records.values())
    assert all((r.seconds is not None and r.seconds > 0) == (r.outcome != "left_out") for r in records.values())
    assert "lr-up-17 died" in records["lr-up-18"].why
    changes = [r.loss_after - records[f"base-{r.seed}"].loss_after for r in records.values() if r.name == "lr-down"]
    [said] = [o.change for o in one_died.report().outcomes if o.name == "lr-down"]
    assert said == pytest.approx(sum(changes) / 2)


def test_the_verifier_agrees_and_finds_a_death_that_was_made_up_or_hidden(one_died, tmp_path):
    assert (one_died.faulty().value, one_died.faulty().reason) == (0, "")
    for number, (path, change, said) in enumerate(
        [
            ("trials/lr-up-17/died.json", None, "did not die"),
            ("trials/lr-down-18/died.json", {"reason": "x"}, "its worker died"),
            ("trials/lr-down-18/left_out.json", {"reason": "x"}, "it was left out"),
            ("trials/base-18/left_out.json", {"reason": "x"}, "base-18: it was left out"),
        ]
    ):
        shutil.copytree(one_died.artifacts, tmp_path / str(number))
        file = tmp_path / str(number) / path
        file.unlink() if change is None else file.write_text(json.dumps(change))
        found = Made(tmp_path / str(number), one_died.samples).faulty()
        assert found.value
        assert said in found.reason


@pytest.mark.parametrize(
    "change", [{"loss_after": 1.0}, {"outcome": "diverged"}, {"steps": 3}, {"name": "lr-up"}, {"seed": 19}]
)
def test_the_verifier_compares_every_line_with_the_logs_of_its_trial(one_died, change, tmp_path):
    shutil.copytree(one_died.artifacts, tmp_path / "a")
    path = tmp_path / "a" / "trials.jsonl"
    first, *others = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(first), **change}), *others]) + "\n")
    found = Made(tmp_path / "a", one_died.samples).faulty()
    assert found.value
    assert "trials.jsonl" in found.reason


def test_with_a_base_trial_everything_that_stands_beside_it_is_left_out(trials_with):
    made = trials_with("base-17")
    assert [r.outcome for r in made.records().values()] == ["died", *["left_out"] * 5]
    assert {o.trend for o in made.report().outcomes} == {"not tried"}
    assert {o.cause.key for o in made.report().outcomes if o.cause} == {"base_died"}
    assert made.faulty().value == 0


@dataclass
class Between:
    """A worker that dies before it begins with the next trial whenever its turn is in `deaths`; else it runs one."""

    jobs: Path
    deaths: set[int]
    fails: Exception | None = None
    turns: int = 0

    def run(self, *args: object, **kwargs: object) -> dict[str, Any]:
        self.turns += 1
        if self.fails:
            raise self.fails
        if self.turns in self.deaths:
            raise OutOfMemory("out of memory: no room for the libraries", "hint")
        due = [job for job in self._jobs() if end_of(job.out) is None]
        _end_well(due[0])
        if len(due) > 1:
            raise WorkerDied("the worker was killed", "hint", 9)  # between this trial and the next one
        return {"trials": len(due)}

    def _jobs(self) -> list[Job]:
        return Trials.model_validate_json(self.jobs.read_bytes()).jobs


def _end_well(job: Job) -> None:
    begin(job.out)
    write_lines(
        job.out / PROBES, [{"step": 0, "loss": 2.0}, {"step": 4, "loss": 1.0 + job.training.seed * job.training.lr}]
    )
    write_json(job.out / "result.json", {})


@pytest.fixture
def between(monkeypatch, tmp_path, tiny_model, samples_file) -> Callable[..., tuple[Between, TrialsReport]]:
    def make(*deaths: int, fails: Exception | None = None) -> tuple[Between, TrialsReport]:
        worker = Between(tmp_path / "work" / "small" / "jobs.json", set(deaths), fails)
        monkeypatch.setattr(dry_run_trials, "run_worker", worker.run)
        one = material(tiny_model, samples_file)
        return worker, make_trials(small_training(), TRIALS, one, None, place(tmp_path), Quiet())

    return make


def test_a_worker_that_dies_after_each_trial_is_started_for_the_next_one_and_no_trial_is_lost(between):
    worker, report = between()
    assert worker.turns == 6
    assert all(o.change is not None for o in report.outcomes)


def test_a_worker_that_dies_once_before_a_trial_is_started_again_and_no_trial_is_lost(between):
    worker, report = between(1)
    assert worker.turns == 7
    assert all(o.change is not None for o in report.outcomes)


def test_a_worker_that_always_dies_before_a_trial_ends_it_and_never_the_dry_run(between, tmp_path):
    _, report = between(3, 4)  # two trials ended, then twice before lr-up-17
    outcomes = {o.name: o for o in report.outcomes}
    assert (outcomes["lr-up"].trend, outcomes["lr-down"].change is not None) == ("died", True)
    records = {f"{r.name}-{r.seed}": r for r in read_records(tmp_path / "artifacts" / "trials.jsonl")}
    assert (records["lr-up-17"].outcome, records["lr-up-17"].steps, records["lr-up-17"].seconds) == ("died", 0, None)
    assert "no room for the libraries" in records["lr-up-17"].why
    assert records["lr-up-18"].outcome == "left_out"


def test_where_no_worker_ever_begins_no_setting_has_a_result_and_the_reason_is_said(between, tmp_path):
    worker, report = between(*range(1, 100))
    assert worker.turns == 2
    assert {o.cause.key for o in report.outcomes if o.cause} == {"base_died"}
    assert "no room for the libraries" in "".join(notes(report, "zh"))
    assert Made(tmp_path / "artifacts", Path()).faulty().value == 0


def test_a_trial_that_was_cut_off_with_the_whole_stage_is_not_what_the_next_worker_dies_of(between, tmp_path):
    with pytest.raises(StorageError):
        between(fails=StorageError("no space left"))
    cut_off = tmp_path / "work" / "small" / "base-17" / "worker"
    begin(cut_off)
    worker, report = between(1)
    assert worker.turns == 7
    assert all(o.change is not None for o in report.outcomes)


def test_a_trial_ends_once_and_how_it_ended_is_read_back(tmp_path):
    begin(tmp_path / "a")
    assert was_cut_off(tmp_path / "a")
    die(tmp_path / "a", "killed")
    leave_out(tmp_path / "b", "a died")
    assert [end_of(tmp_path / name) for name in "abc"] == ["died", "left_out", None]
    assert not any(was_cut_off(tmp_path / name) for name in "abc")
    assert (tmp_path / "a" / STARTED).is_file()
