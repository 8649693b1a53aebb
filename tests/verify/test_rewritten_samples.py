"""What a stage that rewrites samples may not break is found in the table it wrote, whatever it says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specs.criteria import judge
from specs.metrics import OF_REWRITTEN
from tasks.added.stage import metrics as added_metrics
from tasks.verify import rewritten
from tests.support.stages import small_spec

NO_PARENT: dict[str, Any] = {"spec": {}, "project_dir": "."}
FAULTS = ("主轴异响，更换轴承", "刀库不到位，调整限位开关", "液压泵漏油，更换密封圈", "冷却液不足，清洗过滤网")
TEXTS = ("device_model", "fault_type", "phenomenon", "steps", "repair")


def row(number: int, answer: str, split: str) -> dict[str, Any]:
    empty = dict.fromkeys(TEXTS, "")
    return {**empty, "sample_id": f"s{number}", "split": split, "kind": "note", "prompt": "", "answer": answer}


def rows() -> list[dict[str, Any]]:
    """Four training samples and two held-out ones that have nothing in common."""
    held_out = ("伺服驱动器过载报警后复位并检查电缆", "操作面板黑屏时测量二十四伏电源")
    return [row(i, f"{text}，编号{i}", "train") for i, text in enumerate(FAULTS)] + [
        row(10 + i, text, "eval") for i, text in enumerate(held_out)
    ]


def measured(folder: Path, after: list[dict[str, Any]]) -> dict[str, float | None]:
    for name, table in (("before", rows()), ("after", after)):
        pq.write_table(pa.Table.from_pylist(table), folder / f"{name}.parquet")
    found = rewritten.metrics(folder / "before.parquet", folder / "after.parquet", NO_PARENT)
    assert list(found) == [d.name for d in OF_REWRITTEN]
    return {name: metric.value for name, metric in found.items()}


def changed(**number_to_answer: str) -> list[dict[str, Any]]:
    return [{**r, "answer": number_to_answer.get(r["sample_id"], r["answer"])} for r in rows()]


def leaks(number: int) -> dict[str, int]:
    return {"exact_duplicate_leakage": number, "near_duplicate_leakage": number}


QUIET = dict.fromkeys((d.name for d in OF_REWRITTEN), 0)


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (changed(s0="主轴有噪声，换新的轴承"), {}),
        (changed(s0=rows()[4]["answer"]), leaks(1)),
        (changed(s11=rows()[4]["answer"], s1=rows()[4]["answer"] + "。"), leaks(2)),
        (changed(s0=rows()[4]["answer"] + "，换"), {"near_duplicate_leakage": 1}),
        ([{**r, "split": "train"} if r["sample_id"] == "s10" else r for r in rows()], {"samples_across": 1}),
        (rows()[1:], {"samples_left_out": 1}),
        ([*rows(), row(0, "润滑泵不上油，清洗滤芯", "train")], {"samples_made": 1}),
        ([*rows(), row(4, rows()[5]["answer"], "train")], {"samples_made": 1, **leaks(1)}),
    ],
    ids=["kept", "equal", "made equal to two", "near", "moved", "left out", "an id twice", "made and equal"],
)
def test_what_leaks_moves_or_goes_is_counted(tmp_path, after, found):
    assert measured(tmp_path, after) == {**QUIET, **found}


@pytest.mark.parametrize(
    "after",
    [[], [{**rows()[0], "answer": None}, *rows()[1:]], [{**rows()[0], "split": "test"}, *rows()[1:]]],
    ids=["empty", "no answer", "a third side"],
)
def test_a_table_that_cannot_be_searched_passes_nothing(tmp_path, after):
    table = pa.Table.from_pylist(after, schema=pa.Table.from_pylist(rows()).schema)
    pq.write_table(pa.Table.from_pylist(rows()), tmp_path / "before.parquet")
    pq.write_table(table, tmp_path / "after.parquet")
    found = rewritten.metrics(tmp_path / "before.parquet", tmp_path / "after.parquet", NO_PARENT)
    assert {metric.value for metric in found.values()} == {None}
    assert all(metric.reason for metric in found.values())


def test_a_stage_that_rewrites_samples_is_measured_whatever_it_declares(tmp_path):
    stage = {
        "inputs": {"samples": "data/samples.parquet"},
        "command": ["echo"],
        "outputs": ["samples.parquet"],
        "rewrites": "data/samples.parquet",
        "metrics": {"m": {"unit": "samples", "self_reported": True}},
    }
    spec = small_spec(added_stages={"expand": stage})
    for name, table in (("data", rows()), ("expand", changed(s0=rows()[4]["answer"]))):
        (tmp_path / name / "artifacts").mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(table), tmp_path / name / "artifacts" / "samples.parquet")
    context = {"spec": spec.model_dump(mode="json"), "stage": "expand", "project_dir": str(tmp_path)}
    found = added_metrics(tmp_path / "expand", {"data": tmp_path / "data"}, context)
    assert [name for name in found if name != "m"] == [d.name for d in OF_REWRITTEN]
    failed = {v.metric for v in judge(spec.criteria("expand"), found) if v.blocking and not v.passed}
    assert failed == {"exact_duplicate_leakage", "near_duplicate_leakage"}
