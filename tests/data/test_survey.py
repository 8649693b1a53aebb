"""A look through the sources counts what the data stage will count, before it runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flows.new_project import create
from specs.loading import load_project
from tasks.data import survey as surveying
from tasks.data.survey import Survey, survey


@pytest.fixture(scope="module", params=["en", "zh"])
def example(request, tmp_path_factory) -> Path:
    """The example project in one language."""
    folder = tmp_path_factory.mktemp("survey") / request.param
    create(folder, "cnc-repair", request.param)
    return folder


def look(folder: Path, model: Path | None = None, **wanted: str) -> Survey:
    """A survey for words by their patterns."""
    spec = load_project(folder).spec
    return survey(folder, spec, model, {word: re.compile(given) for word, given in wanted.items()})


def test_records_are_counted_and_words_found_where_they_occur(example: Path, tiny_model: Path):
    found = look(example, tiny_model, spindle="spindle|主轴", boiler="boiler|锅炉")
    assert found.uncovered == ["boiler"]
    assert found.complete
    assert found.rows > found.distinct > 400
    assert found.mean_tokens is not None
    assert found.longest_tokens is not None
    assert found.mean_tokens < found.longest_tokens
    assert found == look(example, tiny_model, spindle="spindle|主轴", boiler="boiler|锅炉")


def test_without_a_model_there_are_counts_and_no_tokens(example: Path):
    found = look(example)
    assert found.distinct > 400
    assert (found.sampled, found.mean_tokens, found.longest_tokens) == (0, None, None)


def test_a_word_is_not_called_missing_where_not_everything_was_looked_at(example: Path, monkeypatch):
    monkeypatch.setattr(surveying, "MOST_RECORDS", 10)
    found = look(example, boiler="boiler")
    assert not found.complete
    assert found.uncovered == []


def test_the_sample_is_spread_over_all_records(tmp_path: Path, tiny_model: Path):
    """A long tail at the end of the file counts as much as its share."""
    (tmp_path / "raw").mkdir()
    rows = [f"fault {n} at axis {n}," + "turn the nut. " * (1 if n < 3000 else 40) + str(n) for n in range(6000)]
    (tmp_path / "raw" / "w.csv").write_text("P,R\n" + "\n".join(rows), encoding="utf-8")
    (tmp_path / "project.yaml").write_text(
        "project: p\nbase_model: m\n"
        "sources: [{kind: work_orders, path: raw/w.csv, columns: {phenomenon: P, repair: R}}]\n"
    )
    found = look(tmp_path, tiny_model)
    assert (found.rows, found.distinct) == (6000, 6000)
    assert surveying.SAMPLED <= found.sampled < 2 * surveying.SAMPLED
    assert found.mean_tokens is not None
    assert found.longest_tokens is not None
    assert 0.4 < found.mean_tokens / found.longest_tokens < 0.65
