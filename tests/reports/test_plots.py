"""Plots are drawn from artifacts alone, the same bytes each time, and readable in any language."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tasks.plot_drawings import smooth
from tasks.plots import PLOTS, draw, missing
from tests.reports.report_attempts import WRITERS


@pytest.fixture(scope="module", params=sorted(WRITERS))
def attempt(request, tmp_path_factory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    WRITERS[request.param](folder)
    return request.param, folder


def test_every_plot_of_a_stage_is_drawn_and_is_well_formed(attempt):
    stage, folder = attempt
    paths = draw(stage, folder, "en")
    assert [p.stem for p in paths] == [plot.name for plot in PLOTS[stage]]
    assert missing(stage, folder, "en") == []
    for path in paths:
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        texts = [t for t in root.itertext() if t.strip()]
        assert len(texts) > 3, "text must stay text"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_equal_artifacts_give_equal_bytes(attempt, language, tmp_path):
    stage, folder = attempt
    again = tmp_path / "copy"
    shutil.copytree(folder / "artifacts", again / "artifacts")
    first = [p.read_bytes() for p in draw(stage, folder, language)]
    second = [p.read_bytes() for p in draw(stage, again, language)]
    assert first == second


def test_the_users_matplotlib_settings_change_nothing(attempt):
    import matplotlib

    stage, folder = attempt
    first = [p.read_bytes() for p in draw(stage, folder, "en")]
    with matplotlib.rc_context({"font.size": 22, "axes.grid": False, "svg.fonttype": "path"}):
        assert [p.read_bytes() for p in draw(stage, folder, "en")] == first
        assert matplotlib.rcParams["font.size"] == 22


def test_plots_fetch_nothing_and_name_no_date_and_follow_the_page(attempt):
    stage, folder = attempt
    for path in draw(stage, folder, "zh"):
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"https?://(?!www\.w3\.org/)[^\s\"']+", text) == []
        assert "<metadata" not in text
        assert "<?xml" not in text
        assert "currentColor" in text
        assert "Noto Sans CJK" in text
        assert re.search(r"[一-鿿]", text)


def test_axes_carry_units():
    units = {"data": "tokens", "train": "nats/token", "stress_test": "GiB", "evaluate": "nats/token"}
    for stage, unit in units.items():
        assert any(unit in text for text in drawn_texts(stage)), stage


def drawn_texts(stage: str) -> list[str]:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "attempt"
        WRITERS[stage](folder)
        return [p.read_text(encoding="utf-8") for p in draw(stage, folder, "en")]


def test_a_missing_artifact_is_named_and_the_rest_is_drawn(tmp_path):
    folder = tmp_path / "attempt"
    (folder / "artifacts").mkdir(parents=True)
    (folder / "artifacts" / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n', encoding="utf-8")
    assert [p.stem for p in draw("train", folder, "en")] == ["loss"]
    assert missing("train", folder, "en") == [("Memory over the run", "metrics.jsonl")]
    assert draw("evaluate", folder, "en") == []
    assert [what for _, what in missing("evaluate", folder, "en")] == ["eval_losses.parquet"] * 2


def test_steps_that_are_not_finite_leave_a_gap_and_no_crash(tmp_path):
    folder = tmp_path / "attempt"
    (folder / "artifacts").mkdir(parents=True)
    lines = '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": null}\n{"step": 3, "loss": 1.0}\n'
    (folder / "artifacts" / "metrics.jsonl").write_text(lines, encoding="utf-8")
    assert [p.stem for p in draw("train", folder, "en")] == ["loss"]


def test_a_stage_that_a_person_added_has_no_plots(tmp_path):
    assert draw("expert_labelling", tmp_path, "en") == []


def test_the_smoothed_curve_keeps_a_straight_line():
    line = [10.0 - 0.1 * i for i in range(60)]
    assert smooth(line) == pytest.approx(line)
    assert smooth([3.0]) == [3.0]
