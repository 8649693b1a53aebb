"""The page on rehearsals and dry runs says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from specs.metrics import definitions
from specs.parameters import TrainingConfiguration
from specs.rehearsal import LEARNT
from specs.tolerances import TOLERANCES
from specs.trials import MATERIAL, TrialSettings
from tasks.dry_run_trials import MEASURED
from tasks.rehearsal import EVALUATED
from tasks.training.trials import LR_FACTOR, RANK_FACTOR, SHORTER, variants

PAGE = (Path(__file__).parents[2] / "docs" / "rehearsal.md").read_text(encoding="utf-8")


def test_the_tolerances_are_those_of_the_code():
    shown = re.search(r"tolerances:begin -->\n(.*?)<!--", PAGE, re.DOTALL)
    assert shown is not None
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown[1].strip().splitlines()[2:]]
    wanted = [
        [t.device, t.compute, f"{t.repeated:g}", f"{t.regrouped:g}", "yes" if t.measured else "no"] for t in TOLERANCES
    ]
    assert rows == wanted


def test_the_page_gives_the_factors_and_counts_of_the_trials():
    part = PAGE.split("## Small trials")[1].split("## Tolerances")[0]
    assert (RANK_FACTOR, SHORTER, LR_FACTOR, MEASURED, MATERIAL) == (2, 0.75, 3, 32, 0.02)
    assert "halved and doubled" in part
    assert f"multiplied by {LR_FACTOR}" in part
    assert "three quarters" in part
    assert f"up to {MEASURED} held-out samples" in part
    assert f"at least {MATERIAL:.0%}".replace("%", " %") in part
    tried = len(variants(TrainingConfiguration(), TrialSettings(vary=["rank", "lr", "length"]), [8, 16, 24, 32]))
    settings = TrialSettings()
    assert f"{tried * settings.repeats} trainings, {tried * settings.repeats * settings.steps} steps" in part


def test_every_metric_that_the_page_names_exists_and_what_was_learnt_is_named():
    known = {d.name for stage in ("dry_run", "train", "evaluate") for d in definitions(stage)}
    part = PAGE.split("## What the dry run shows")[1].split("## Small trials")[0]
    cells = [line.split("|")[2] for line in part.splitlines() if line.startswith("| ") and "metric" not in line]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert len(named) >= 15
    assert named <= known
    for stage, metrics in LEARNT.items():
        assert metrics <= {d.name for d in definitions(stage)}
    assert all(f"`{name}`" in PAGE for name in LEARNT["evaluate"] | {"loss_trend"})
    assert EVALUATED == 8
    assert "eight at least" in PAGE
