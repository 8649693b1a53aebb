"""The example projects through the data stage: exactly what was planted is merged, kept and quarantined."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from specs.criteria import blocked, judge
from specs.loading import load_project
from specs.metrics import default_criteria
from tasks.data.probe import probe_sources
from tasks.verify.data import metrics
from tests.support.raw_project import run_stage, stage_context

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Example:
    """A finished run of an example and what was planted in it."""

    folder: Path
    out: Path
    model: Path
    planted: dict[str, Any]

    def orders(self) -> dict[str, dict[str, Any]]:
        """Ledger rows of the work orders by location."""
        source = self.planted["work_orders"]["source"]
        rows = pq.read_table(self.out / "artifacts" / "row_ledger.parquet").to_pylist()
        return {row["location"]: row for row in rows if row["source"] == source}


@pytest.fixture(scope="module", params=["cnc-repair", "cnc-repair-zh"])
def example(request: pytest.FixtureRequest, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Example:
    out = tmp_path_factory.mktemp(request.param)
    folder = EXAMPLES / request.param
    planted = json.loads((EXAMPLES / "make" / "planted.json").read_text(encoding="utf-8"))[request.param]
    run_stage(folder, load_project(folder).spec, tiny_model, out)
    return Example(folder, out, tiny_model, planted)


def test_every_blocking_criterion_passes(example: Example):
    context = stage_context(example.folder, load_project(example.folder).spec, example.model, example.out)
    verdicts = judge(default_criteria("data"), metrics(example.out, {}, context.model_dump(mode="json")))
    assert not blocked(verdicts), [v for v in verdicts if not v.passed]


def test_every_planted_duplicate_is_merged_with_its_original_and_nothing_else_is(example: Example):
    orders, planted = example.orders(), example.planted["work_orders"]
    pairs = {tuple(sorted(pair)) for name in ("exact_duplicates", "near_duplicates") for pair in planted[name]}
    merged = {
        tuple(sorted((place, row["merged_into"].partition("|")[2])))
        for place, row in orders.items()
        if row["fate"] == "merged"
    }
    assert merged == pairs


def test_every_code_variant_survives_on_one_side_of_the_split(example: Example):
    orders = example.orders()
    samples = pq.read_table(example.out / "artifacts" / "samples.parquet").to_pylist()
    split = {s["sample_id"]: s["split"] for s in samples}
    for group in example.planted["work_orders"]["code_variants"]:
        assert {orders[place]["fate"] for place in group} == {"kept"}
        assert len({split[orders[place]["sample_ids"][0]] for place in group}) == 1


def test_exactly_the_rows_that_say_nothing_are_quarantined(example: Example):
    orders, planted = example.orders(), example.planted["work_orders"]
    assert {p for p, row in orders.items() if row["fate"] == "quarantined"} == set(planted["quarantined"])
    assert len(orders) == planted["rows"]


def test_the_probe_finds_no_problem_and_counts_the_rows(example: Example):
    summaries, problems = probe_sources(example.folder, load_project(example.folder).spec)
    assert problems == []
    rows = {s.kind: s.rows for s in summaries}
    assert rows["work_orders"] == example.planted["work_orders"]["rows"]
    assert rows["fault_codes"] == example.planted["fault_codes"]["rows"]
