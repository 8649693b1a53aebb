"""What the verifier makes of small trials that end in no number, were not made, or were measured elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specs.parameters import LoraParameters, TrainingConfiguration, leaves
from specs.stages import Quiet
from specs.trials import Outcome, TrialParameters, TrialsReport
from tasks.dry_run import SmallModel, _probe, _select
from tasks.dry_run_trials import Material, Place, make_trials, notes
from tasks.pool import pool_of
from tasks.training.trials import base_fall, ends, outcome, short, variants
from tasks.verify.trials import trial_metrics

SEEDS, STEPS = (17, 18), 4
Point = float | None


class Recorded:
    """A dry run's artifacts with trials of the learning rate, written as the stage writes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.training = TrainingConfiguration(lr=1e-3, lora=LoraParameters(rank=1, alpha=2))
        self.asked = TrialParameters(vary=["lr"], steps=STEPS, repeats=len(SEEDS))
        self.losses: dict[str, dict[int, tuple[float, float] | None]] = {}
        for name in ("base", "lr-down", "lr-up"):
            for seed in SEEDS:
                self.trial(name, seed)
        self.samples = folder / "samples.parquet"
        split = {"held": "eval", "other": "eval", "learnt": "train"}
        pq.write_table(pa.table({"sample_id": list(split), "split": list(split.values())}), self.samples)

    def place(self, name: str, seed: int) -> Path:
        place = self.folder / "trials" / f"{name}-{seed}"
        place.mkdir(parents=True, exist_ok=True)
        return place

    def trial(
        self, name: str, seed: int, before: Point = 3.0, after: Point = 2.5, steps: int = STEPS, *, end: bool = True
    ) -> None:
        """One trial, `end: false` without the line of its last loss."""
        place = self.place(name, seed)
        factor = {"lr-down": 1 / 3, "lr-up": 3.0}.get(name, 1.0)
        configured = short(self.training, STEPS).model_copy(update={"seed": seed, "lr": self.training.lr * factor})
        points = [{"step": 0, "loss": before}, {"step": steps, "loss": after}]
        lines = {"metrics.jsonl": [{"step": step + 1, "loss": 2.0} for step in range(steps)]}
        lines["probes.jsonl"] = points if end else points[:1]
        lines["micro_batches.jsonl"] = [{"sample_ids": [f"s{seed}"]}]
        for file, records in lines.items():
            (place / file).write_text("".join(json.dumps(r) + "\n" for r in records))
        (place / "settings.json").write_text(json.dumps({"requested": leaves(configured.model_dump(mode="json"))}))
        (place / "probe.json").write_text(json.dumps({"sample_ids": ["held"]}))
        self.losses.setdefault(name, {})[seed] = ends({0: before, steps: after}, STEPS)

    def said(self, **changes: Any) -> TrialsReport:
        """`trials.json` of these trials, with something else claimed in it."""
        tried = variants(short(self.training, STEPS), self.asked, [9, 9])
        outcomes = [outcome(v, self.losses["base"], self.losses.get(v.name, {}), 0.975) for v in tried[1:]]
        common: dict[str, Any] = {"model": "m", "steps": STEPS, "seeds": list(SEEDS), "samples": 1, "level": 0.975}
        values = {**common, "base_fall": base_fall(self.losses["base"]), "outcomes": outcomes, **changes}
        report = TrialsReport.model_validate(values)
        (self.folder / "trials.json").write_text(report.model_dump_json())
        return report

    def faults(self) -> str:
        """What the verifier says; nothing where the gate may open."""
        parameters = {"training": self.training.model_dump(mode="json"), "trials": self.asked.model_dump(mode="json")}
        found = trial_metrics([{"step": 1}], self.folder, self.samples, parameters)["trials_faulty"]
        assert (found.value == 0) == (found.reason == "")
        return found.reason


@pytest.fixture
def recorded(tmp_path) -> Recorded:
    return Recorded(tmp_path)


@pytest.mark.parametrize(("before", "after"), [(3.0, None), (None, 2.5), (None, None)])
def test_a_loss_that_is_no_number_at_either_end_is_a_divergence_for_stage_and_verifier(recorded, before, after):
    recorded.trial("lr-up", 18, before, after)
    down, up = recorded.said().outcomes
    assert (down.trend, up.trend, up.change) == ("within noise", "diverged", None)
    assert up.cause is not None
    assert up.cause.values == {"count": 1, "trainings": 2}
    assert recorded.faults() == ""


def test_a_base_trial_without_a_number_leaves_no_result_and_is_no_fault(recorded):
    recorded.trial("base", 17, 3.0, None)
    report = recorded.said()
    assert {o.trend for o in report.outcomes} == {"not tried"}
    assert report.base_fall is None
    assert recorded.faults() == ""


def test_a_trial_that_broke_off_after_a_loss_on_its_way_shows_no_change(recorded):
    recorded.trial("lr-up", 17, 3.0, 2.9, steps=2)
    (recorded.place("lr-up", 17) / "diverged.json").write_text("{}")
    recorded.losses["lr-up"][17] = None
    assert recorded.said().outcomes[1].trend == "diverged"
    assert recorded.faults() == ""


def test_a_loss_that_is_missing_is_a_fault_and_no_divergence(recorded):
    recorded.trial("lr-up", 17, end=False)
    recorded.losses["lr-up"][17] = None
    recorded.said()
    assert "lr-up-17: its measured loss is missing" in recorded.faults()


def test_a_result_that_is_there_cannot_be_left_out_nor_a_value_be_called_impossible(recorded):
    hidden = [o.model_copy(update={"trend": "not tried", "change": None}) for o in recorded.said().outcomes]
    recorded.said(outcomes=hidden)
    assert "lr-up: said to be without a result, and its logs show one" in recorded.faults()
    for path in sorted(recorded.folder.glob("trials/*/*")):
        path.unlink()
    for path in [*recorded.folder.glob("trials/*"), recorded.folder / "trials"]:
        path.rmdir()
    assert recorded.faults() == "lr-down: said to be impossible, and is not; lr-up: said to be impossible, and is not"


@pytest.mark.parametrize(
    ("ids", "claimed", "fault"),
    [
        (["held"], "held-out", ""),
        (["learnt"], "training", ""),
        (["learnt"], "held-out", "trials: not measured on held-out samples"),
        (["held", "learnt"], "held-out", "trials: not measured on held-out samples"),
        (["held"], "training", "trials: not measured on training samples"),
    ],
)
def test_what_was_measured_on_is_what_is_said(recorded, ids, claimed, fault):
    for path in recorded.folder.glob("trials/*/probe.json"):
        path.write_text(json.dumps({"sample_ids": ids}))
    recorded.said(measured_on=claimed)
    assert recorded.faults() == fault


def test_trials_that_were_measured_on_other_samples_than_each_other_are_a_fault(recorded):
    (recorded.place("lr-up", 17) / "probe.json").write_text(json.dumps({"sample_ids": ["other"]}))
    recorded.said()
    assert recorded.faults() == "trials: measured on 2 sets of samples"


def test_where_nothing_can_be_tried_no_base_trial_is_made_and_nothing_is_wrong(tmp_path):
    """The model is never loaded: its folder does not exist."""
    recorded = Recorded(tmp_path / "unused")
    rows = [{"sample_id": f"s{n}", "n_tokens": 9, "kind": "note", "prompt": "p"} for n in range(12)]
    pool = pool_of(rows, recorded.training)
    material = Material(tmp_path / "none", "0" * 64, "m", pool, ["held"], "training", tmp_path / "none", "0" * 64)
    recorded.asked = TrialParameters(vary=["length"], steps=STEPS, repeats=len(SEEDS))
    recorded.folder = tmp_path / "artifacts"
    place = Place(tmp_path / "work", recorded.folder, tmp_path / "log")
    report = make_trials(recorded.training, recorded.asked, material, None, place, Quiet())
    assert [(o.name, o.trend) for o in report.outcomes] == [("length-down", "not tried")]
    assert (report.base_fall, list(tmp_path.glob("work/**/*"))) == (None, [])
    assert recorded.faults() == ""
    assert notes(report, "zh")[1] == "试验「最大长度低于 1024」没有结果：样本长度相同：更短的上限排除不了任何样本"


@pytest.mark.parametrize(("held_out_tokens", "on"), [(9, "held-out"), (90, "training")])
def test_a_probe_of_training_samples_is_called_that(tmp_path, held_out_tokens, on):
    columns = {"prompt": ["p"] * 4, "answer": ["a"] * 4, "kind": ["note"] * 4, "fault_type": [""] * 4}
    sizes = {"n_tokens": [9, 9, held_out_tokens, held_out_tokens], "split": ["train", "train", "eval", "eval"]}
    file = tmp_path / "samples.parquet"
    pq.write_table(pa.table({"sample_id": ["a", "b", "c", "d"], **sizes, **columns}), file)
    model = SmallModel(tmp_path, "0" * 64, same=True)
    found = _select(file, model, TrainingConfiguration(max_length=16), Quiet())
    assert found.measured_on == on
    assert _probe(found) == (["c", "d"] if on == "held-out" else ["a", "b"])


def test_records_of_before_there_were_causes_are_read():
    old = {"name": "lr-up", "dimension": "lr", "before": 1, "tried": 3, "trend": "diverged", "reason": "1 of 2"}
    assert Outcome.model_validate(old).cause is None
