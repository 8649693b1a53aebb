"""A trial is one sealed file that trains the same steps anywhere; only results of the same trial are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.trial_data import changed
from specs.canonical import digest
from specs.errors import InputError, VerificationFailed
from specs.stages import Quiet
from tasks.advising import trial as trials
from tasks.advising.trial import StepMeasured, Trial, TrialResult, compared, read_result, read_trial
from tasks.models.folder import digest_model
from tests.support.samples import small_training, write_samples

SHA = "a" * 64


def step(number: int, seconds: float, loss: float | None = 1.0, peak: int | None = 2**30) -> StepMeasured:
    """One measured step of 1,000 tokens."""
    return StepMeasured(step=number, padded_tokens=1000, seconds=seconds, loss=loss, peak_bytes=peak)


def result(name: str, seconds: float, **values: Any) -> TrialResult:
    """Three steps, the first slow because it warms up."""
    known: dict[str, Any] = {
        "name": name,
        "trial_sha256": SHA,
        "device": "CPU",
        "count": 1,
        "usable_bytes": 2**31,
        "environment": {"software.torch": "2.13.0"},
        "steps": [step(1, 10 * seconds), step(2, seconds), step(3, seconds)],
    }
    return TrialResult.model_validate(known | values)


def made(samples: Path, model: Path) -> Trial:
    """A trial of the common samples."""
    return trials.made("tiny", str(model), digest_model(model), small_training(), samples)


def test_a_trial_made_here_runs_on_the_cpu_and_measures_every_step(tiny_model: Path, tmp_path: Path):
    samples = write_samples(tmp_path / "samples.parquet", tiny_model)
    trials.write(made(samples, tiny_model), tmp_path / "trial.json")
    samples.unlink()
    trial = read_trial(tmp_path / "trial.json")
    found = trials.run(trial, tiny_model, "here", Quiet())
    assert [s.step for s in found.steps] == sorted({row["step"] for row in trial.plan})
    assert all(s.seconds > 0 and s.loss is not None and s.peak_bytes for s in found.steps)
    trials.write(found, tmp_path / "here.json")
    assert compared([read_result(tmp_path / "here.json")])[0].loss_difference == 0


def test_a_trial_holds_only_the_samples_of_its_steps_and_all_of_them(tiny_model: Path, tmp_path: Path):
    trial = made(write_samples(tmp_path / "samples.parquet", tiny_model), tiny_model)
    assert {s["sample_id"] for s in trial.samples} == {row["sample_id"] for row in trial.plan}
    assert not any(s["split"] == "eval" for s in trial.samples)


def test_a_changed_file_is_refused(tiny_model: Path, tmp_path: Path):
    path = tmp_path / "trial.json"
    trials.write(made(write_samples(tmp_path / "samples.parquet", tiny_model), tiny_model), path)
    document = json.loads(path.read_bytes())
    document["training"]["seed"] += 1
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(VerificationFailed, match="was changed"):
        read_trial(path)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\xfe", b"[" * 5000, b'{"kind": "gatewright-trial"}'])
def test_what_is_no_trial_is_an_error_for_the_person(content: bytes, tmp_path: Path):
    path = tmp_path / "trial.json"
    path.write_bytes(content)
    for read in (read_trial, read_result):
        with pytest.raises(InputError, match="is not a trial"):
            read(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_trial(tmp_path / "gone.json")


def test_the_first_step_warms_up_and_is_not_compared():
    found = result("a", 2.0)
    assert found.tokens_per_second == pytest.approx(500)
    assert found.seconds_per_step == pytest.approx(2.0)


@given(seconds=st.lists(st.floats(0.01, 100), min_size=1, max_size=6))
def test_the_quickest_machine_comes_first_and_is_slower_than_none(seconds: list[float]):
    rows = compared([result(f"m{n}", s) for n, s in enumerate(seconds)])
    assert rows[0].times_slower == pytest.approx(1.0)
    assert [r.tokens_per_second for r in rows] == sorted((r.tokens_per_second for r in rows), reverse=True)
    assert rows[-1].times_slower == pytest.approx(max(seconds) / min(seconds))


def test_losses_and_software_are_compared_with_the_first_named_machine():
    other = [step(1, 1.0, 1.0), step(2, 1.0, 1.25), step(3, 1.0, None)]
    rows = compared([result("first", 2.0), result("b", 1.0, steps=other, environment={"software.torch": "2.14.0"})])
    by_name = {row.name: row for row in rows}
    assert by_name["b"].loss_difference == pytest.approx(0.25)
    assert by_name["b"].different == {"torch": "2.14.0"}
    assert by_name["first"].different == {}
    assert by_name["b"].share == pytest.approx(0.5)


def test_results_of_different_trials_are_not_compared():
    with pytest.raises(InputError, match="different trials"):
        compared([result("a", 1.0), result("b", 1.0, trial_sha256="b" * 64)])


def test_a_setting_is_changed_by_name_and_a_wrong_one_is_said():
    found = changed(small_training(), {"seed": "7", "rank": "4", "training.lr": "1e-3", "max_steps": "null"})
    assert (found.seed, found.lora.rank, found.lr, found.max_steps) == (7, 4, 1e-3, None)
    for key, value in (("nothing", "1"), ("weights", "fp3"), ("seed", "x"), ("lora.rank", "0"), ("lora", "{}")):
        with pytest.raises(InputError, match=f"--set {key}"):
            changed(small_training(), {key: value})
    with pytest.raises(InputError, match="twice"):
        changed(small_training(), {"lora.rank": "4", "rank": "8"})


def test_a_misspelt_setting_is_pointed_to_the_nearest():
    with pytest.raises(InputError) as raised:
        changed(small_training(), {"microbatch": "4"})
    assert "micro_batch" in raised.value.hint


@pytest.mark.parametrize(
    "settings",
    [
        {"weights": "bf16"},
        {"compute": "bf16"},
        {"weights": "nf4-dq", "compute": "amp-bf16"},
        {"method": "qlora"},
        {"method": "full", "weights": "nf4"},
        {"sharding": "fsdp", "ranks": "2"},
        {"packing": "true", "attention": "flash", "micro_batch": "2"},
    ],
)
def test_settings_that_no_machine_can_train_together_are_refused_before_anything_is_written(settings: dict[str, str]):
    with pytest.raises(InputError, match="exclude each other") as raised:
        changed(small_training(), settings)
    assert raised.value.hint


def test_settings_that_another_machine_can_train_are_taken():
    assert changed(small_training(), {"weights": "bf16", "compute": "amp-bf16"}).weights == "bf16"
    assert changed(small_training(), {"attention": "flash", "weights": "bf16", "compute": "bf16"}).attention == "flash"


def test_a_trial_of_before_there_was_a_language_keeps_its_digest(tiny_model: Path, tmp_path: Path):
    trial = made(write_samples(tmp_path / "samples.parquet", tiny_model), tiny_model)
    document = trial.model_dump(mode="json", exclude={"sha256", "language"})
    path = tmp_path / "old.json"
    path.write_text(json.dumps({**document, "sha256": digest(document)}), encoding="utf-8")
    assert read_trial(path).language is None
    path.write_text(json.dumps({**document, "language": "zh", "sha256": digest(document)}), encoding="utf-8")
    with pytest.raises(VerificationFailed, match="was changed"):
        read_trial(path)


def test_a_table_of_machines_speaks_the_language_of_the_project(tmp_path: Path):
    from typer.testing import CliRunner

    from flows.cli.app import app, load_groups

    load_groups()
    for name, language in (("a", "zh"), ("b", None)):
        trials.write(result(name, 1.0, language=language), tmp_path / f"{name}.json")

    def said(*arguments: str) -> str:
        return CliRunner().invoke(app, ["trial", "compare", *arguments], env={"COLUMNS": "200"}).output

    assert "词元/秒" in said(str(tmp_path / "a.json"))
    assert "tokens/s" in said(str(tmp_path / "b.json"))
    assert "tokens/s" in said(str(tmp_path / "a.json"), "--lang", "en")
    assert "--lang" in said(str(tmp_path / "a.json"), "--lang", "fr")
