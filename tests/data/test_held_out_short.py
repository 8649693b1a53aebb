"""A split that holds out fewer samples than asked for says how many fewer, and why."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow.parquet as pq

from specs.project import Project
from tests.support.raw_project import orders, run_stage


def test_fewer_held_out_samples_than_asked_are_counted(tmp_path: Path, tiny_model: Path):
    (tmp_path / "raw").mkdir()
    rows = [[*row[:4], f"E{i:03d}"] for i, row in enumerate(orders("en")[:80])]  # each code once: none can be held out
    with (tmp_path / "raw" / "orders.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["machine", "problem", "checks", "repair", "code"], *rows])
    columns = {"device_model": "machine", "phenomenon": "problem", "steps": "checks", "repair": "repair"}
    source = {"kind": "work_orders", "path": "raw/orders.csv", "columns": columns | {"fault_type": "code"}}
    spec = Project.model_validate({"project": "short", "base_model": "tiny", "sources": [source]})
    result = run_stage(tmp_path, spec, tiny_model, tmp_path / "out")
    splits = pq.read_table(tmp_path / "out" / "artifacts" / "samples.parquet")["split"].to_pylist()
    short = round(0.1 * len(splits)) - splits.count("eval")
    assert short > 0
    note = next(n for n in result.notes if n.startswith("held-out samples fewer than asked for"))
    assert note.endswith(f": {short}")
