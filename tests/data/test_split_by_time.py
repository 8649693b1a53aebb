"""`split: {by: time}` holds out the newest work orders, and asks for dates where there are none."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from specs.errors import InputError
from specs.project import Project
from tests.support.raw_project import orders, run_stage


def dated_project(folder: Path, mapped: bool) -> Project:
    """Two hundred work orders, a day each, in an order that has nothing to do with their dates."""
    (folder / "raw").mkdir()
    header = ["machine", "problem", "checks", "repair", "code", "date"]
    rows = [[*row, f"2024/{1 + i * 7 % 12}/{1 + i * 11 % 28}"] for i, row in enumerate(orders("en")[:200])]
    with (folder / "raw" / "orders.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    columns = {"device_model": "machine", "phenomenon": "problem", "steps": "checks", "repair": "repair"}
    columns |= {"fault_type": "code"} | ({"date": "date"} if mapped else {})
    source = {"kind": "work_orders", "path": "raw/orders.csv", "columns": columns}
    return Project.model_validate(
        {"project": "dated", "base_model": "tiny", "sources": [source], "split": {"by": "time"}}
    )


def test_the_newest_records_are_held_out(tmp_path: Path, tiny_model: Path):
    run_stage(tmp_path, dated_project(tmp_path, mapped=True), tiny_model, tmp_path / "out")
    samples = pq.read_table(tmp_path / "out" / "artifacts" / "samples.parquet").to_pylist()
    with (tmp_path / "raw" / "orders.csv").open(encoding="utf-8") as file:
        dates = [tuple(map(int, row["date"].split("/"))) for row in csv.DictReader(file)]
    when = {
        split: [dates[int(s["location"][1:]) - 1] for s in samples if s["split"] == split]
        for split in ("train", "eval")
    }
    assert 15 <= len(when["eval"]) <= 20
    later = [day for day in when["train"] if day > min(when["eval"])]
    assert len(later) <= 3  # records that are alike stay together, and the last of a fault type is never held out


def test_without_a_date_column_the_way_out_is_named(tmp_path: Path, tiny_model: Path):
    with pytest.raises(InputError) as caught:
        run_stage(tmp_path, dated_project(tmp_path, mapped=False), tiny_model, tmp_path / "out")
    assert "date" in caught.value.hint
