"""The verifier of the data stage finds what is planted: each fault turns the metric that is there for it."""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specs.criteria import blocked, judge
from specs.metrics import default_criteria, definitions
from specs.project import Project
from tasks.data import quoting
from tasks.prompts import PromptTemplate
from tasks.verify.data import metrics
from tests.support.raw_project import EXACT_ROW, VARIANT_ROWS, Finished, run_stage, stage_context

Rows = list[dict[str, Any]]


@pytest.fixture(params=["en", "zh"])
def honest(request: pytest.FixtureRequest, data_run: Callable[[str], Finished]) -> Finished:
    return data_run(request.param)


def measured(run: Finished, out: Path | None = None, project: Path | None = None) -> dict[str, float | None]:
    context = run.context.model_dump(mode="json") | ({"project_dir": str(project)} if project else {})
    return {name: m.value for name, m in metrics(out or run.out, {}, context).items()}


@pytest.fixture
def spoilt(honest: Finished, tmp_path: Path) -> Callable[..., dict[str, float | None]]:
    """`spoilt(table, change)` changes the rows of one artifact in a copy of the attempt and measures again."""

    def spoil(name: str, change: Callable[[Rows], Rows | None]) -> dict[str, float | None]:
        out = tmp_path / "attempt"
        if not out.exists():
            shutil.copytree(honest.out, out)
        path = out / "artifacts" / f"{name}.parquet"
        table = pq.read_table(path)
        rows = table.to_pylist()
        rows = change(rows) or rows
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
        return measured(honest, out)

    return spoil


def test_an_honest_run_passes_every_criterion(honest: Finished):
    found = metrics(honest.out, {}, honest.context.model_dump(mode="json"))
    assert set(found) == {d.name for d in definitions("data")}
    assert {name: m.unit for name, m in found.items()} == {d.name: d.unit for d in definitions("data")}
    verdicts = judge(default_criteria("data"), found)
    assert not blocked(verdicts), [v for v in verdicts if not v.passed]
    assert found["rows_total"].value == len(honest.table("row_ledger"))


def test_a_row_dropped_from_the_ledger_is_missed(spoilt):
    assert spoilt("row_ledger", lambda rows: rows[1:])["rows_unaccounted"] > 0


def test_a_row_that_stands_twice_in_the_ledger_is_found(spoilt):
    assert spoilt("row_ledger", lambda rows: [*rows, rows[-1]])["rows_unaccounted"] > 0


def test_a_row_that_is_in_no_raw_file_is_found(spoilt):
    def invent(rows: Rows) -> Rows:
        return [*rows, {**rows[0], "location": "#9999", "sample_ids": rows[0]["sample_ids"]}]

    assert spoilt("row_ledger", invent)["rows_unaccounted"] > 0


@pytest.mark.parametrize("kept", [0, -1])
def test_rows_cut_off_the_raw_file_or_added_to_it_are_found(honest: Finished, tmp_path: Path, kept):
    project = tmp_path / "project"
    shutil.copytree(honest.folder / "raw", project / "raw")
    codes = project / "raw/codes.csv"
    lines = codes.read_text(encoding="utf-8").splitlines(keepends=True)
    codes.write_text("".join(lines[:kept] if kept else [*lines, lines[-1]]), encoding="utf-8")
    assert measured(honest, project=project)["rows_unaccounted"] == 1


def test_rows_that_an_open_quote_swallowed_are_missed_although_the_ledger_agrees_with_the_reader(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = [f"The spindle {n} makes noise {n * 7},replaced bearing {n * 3}\n" for n in range(1, 41)]
    rows[9] = rows[9].replace(",", ',"')
    (tmp_path / "a.csv").write_text("Problem,Repair\n" + "".join(rows))
    columns = {"phenomenon": "Problem", "repair": "Repair"}
    source = {"kind": "work_orders", "path": "a.csv", "columns": columns}
    spec = Project.model_validate({"project": "p", "base_model": "m", "sources": [source]})
    monkeypatch.setattr(quoting, "_check_span", lambda *_: None)
    run_stage(tmp_path, spec, tiny_model, tmp_path / "out")
    assert len(pq.read_table(tmp_path / "out/artifacts/row_ledger.parquet")) == 10
    context = stage_context(tmp_path, spec, tiny_model, tmp_path / "out").model_dump(mode="json")
    assert metrics(tmp_path / "out", {}, context)["rows_unaccounted"].value == 30


def test_a_quarantined_row_without_its_original_is_found(spoilt):
    assert spoilt("quarantine", lambda rows: rows[1:])["rows_unaccounted"] == 1


def test_a_paragraph_that_disappeared_is_found(spoilt):
    found = spoilt("paragraphs", lambda rows: rows[1:])
    assert found["rows_unaccounted"] > 0
    assert found["characters_unexplained"] > 0


def _say(sample: dict[str, Any], prompt: str, answer: str, template: PromptTemplate) -> None:
    """Change what a sample says so that nothing about the sample itself gives it away."""
    encoded = template.encode(prompt, answer)
    sample |= {"prompt": prompt, "answer": answer, "n_tokens": len(encoded.input_ids)}
    sample["text"] = template.text(prompt, answer)


@pytest.mark.parametrize("fault", ["invented", "cut in the middle", "another code", "question of another row"])
@pytest.mark.parametrize("kind", ["work_order", "fault_code"])
def test_a_sample_that_says_something_else_than_its_row_is_found(spoilt, tiny_model, kind, fault):
    template = PromptTemplate.load(tiny_model)

    def change(rows: Rows) -> None:
        one, other = [r for r in rows if r["kind"] == kind and r["split"] == "train"][5:7]
        prompt, answer = one["prompt"], one["answer"]
        middle = len(answer) // 2
        changed = {
            "invented": (prompt, f"First call the maker 马上. {answer}"),
            "cut in the middle": (prompt, answer[: middle - 7] + answer[middle:]),
            "another code": (prompt.replace(one["fault_type"], "ALM-0099"), answer),
            "question of another row": (other["prompt"], answer),
        }[fault]
        _say(one, *changed, template)

    assert spoilt("samples", change)["samples_without_provenance"] >= 1


def test_a_number_altered_in_a_manual_is_found_although_its_digits_are_all_there(spoilt, tiny_model):
    template = PromptTemplate.load(tiny_model)

    def change(rows: Rows) -> None:
        one = next(r for r in rows if r["kind"] == "manual" and "10" in r["answer"])
        head, _, tail = one["answer"].rpartition("10")
        _say(one, one["prompt"], f"{head}01{tail}", template)

    assert spoilt("samples", change)["characters_unexplained"] == 1


def test_characters_lost_from_a_paragraph_are_found(spoilt):
    def shorten(rows: Rows) -> None:
        rows[2]["text"] = rows[2]["text"][:-7]

    assert spoilt("paragraphs", shorten)["characters_unexplained"] >= 5


def test_a_changed_number_in_a_paragraph_is_found(spoilt):
    def change(rows: Rows) -> None:
        row = next(r for r in rows if "30" in r["text"])
        row["text"] = row["text"].replace("30", "80", 1)

    assert spoilt("paragraphs", change)["characters_unexplained"] > 0


def test_characters_lost_from_a_sample_are_found(spoilt):
    def lose(rows: Rows) -> None:
        row = next(r for r in rows if r["kind"] == "manual")
        row["answer"] = row["answer"][:40]

    assert spoilt("samples", lose)["characters_unexplained"] > 30


def test_a_count_of_decoded_characters_that_is_off_is_found(honest: Finished, tmp_path: Path):
    shutil.copytree(honest.out, tmp_path / "attempt")
    path = tmp_path / "attempt/artifacts/decoding.json"
    decoding = json.loads(path.read_bytes())
    decoding["files"][0]["characters_in"] -= 5
    decoding["files"][0]["characters_out"] -= 5
    path.write_text(json.dumps(decoding))
    assert measured(honest, tmp_path / "attempt")["characters_unexplained"] == 5


def test_a_wrong_encoding_is_found(honest: Finished, tmp_path: Path):
    shutil.copytree(honest.out, tmp_path / "attempt")
    path = tmp_path / "attempt/artifacts/decoding.json"
    decoding = json.loads(path.read_bytes())
    entry = next(f for f in decoding["files"] if f["source"] in ("raw/orders.csv", "raw/codes.csv"))
    entry["encoding"] = "big5"
    path.write_text(json.dumps(decoding))
    assert measured(honest, tmp_path / "attempt")["characters_unexplained"] > 100


def test_a_window_over_a_gap_is_found(spoilt):
    def widen(rows: Rows) -> None:
        channels = {r["channel"] for r in rows}
        ends = [r for r in rows if r["segment"] == 1][-len(channels) :]
        for row in ends:
            row["rows"] += 10
        first = next(r["location"] for r in rows if r["segment"] == 2)
        for row in rows:
            row["rows"] -= 10 * (row["location"] == first)

    assert spoilt("windows", widen)["rows_unaccounted"] > 0


def test_a_sample_without_a_ledger_row_is_found(spoilt):
    def cut(rows: Rows) -> None:
        next(r for r in rows if r["fate"] == "kept")["sample_ids"] = []

    found = spoilt("row_ledger", cut)
    assert found["samples_without_provenance"] == 1
    assert found["rows_unaccounted"] == 1


def test_a_sample_that_names_another_row_is_found(spoilt):
    def swap(rows: Rows) -> None:
        rows[0]["location"], rows[1]["location"] = rows[1]["location"], rows[0]["location"]

    assert spoilt("samples", swap)["samples_without_provenance"] >= 2


def pair(rows: Rows) -> tuple[dict[str, Any], dict[str, Any]]:
    """A training and a held-out work order."""
    found = [next(r for r in rows if r["split"] == s and r["kind"] == "work_order") for s in ("train", "eval")]
    return found[0], found[1]


def copy_text(source: dict[str, Any], target: dict[str, Any], **changes: str) -> None:
    for name in ("device_model", "phenomenon", "steps", "repair", "prompt", "answer", "text", "fault_type"):
        target[name] = source[name]
    target.update(changes)


def test_a_sample_on_both_sides_of_the_split_is_leakage(spoilt):
    found = spoilt("samples", lambda rows: copy_text(*pair(rows)))
    assert found["exact_duplicates_left"] == 1
    assert found["exact_duplicate_leakage"] == 1
    assert found["near_duplicate_leakage"] == 1


def test_a_near_duplicate_in_the_held_out_set_is_leakage(spoilt):
    def near(rows: Rows) -> None:
        a, b = pair(rows)
        copy_text(a, b, phenomenon=a["phenomenon"] + " x1", prompt=a["prompt"] + " x1")

    found = spoilt("samples", near)
    assert found["near_duplicate_leakage"] == 1
    assert found["exact_duplicate_leakage"] == 0


def test_a_code_variant_that_moved_to_the_other_side_is_leakage(spoilt):
    def move(rows: Rows) -> None:
        variants = [r for r in rows if r["location"].endswith(tuple(f"#{n}" for n in VARIANT_ROWS))]
        orders = [r for r in variants if r["kind"] == "work_order"]
        orders[0]["split"] = "eval" if orders[1]["split"] == "train" else "train"

    assert spoilt("samples", move)["near_duplicate_leakage"] >= 1


def test_a_code_variant_that_was_merged_is_lost(spoilt):
    def merge(rows: Rows) -> None:
        orders = [r for r in rows if r["source"].startswith("raw/orders")]
        by_number = {int(r["location"].rpartition("#")[2]): r for r in orders}
        row, other = by_number[VARIANT_ROWS[0]], by_number[VARIANT_ROWS[1]]
        row.update(fate="merged", reason="near_duplicate", sample_ids=[])
        row["merged_into"] = f"{other['source']}|{other['location']}"
        assert by_number[EXACT_ROW]["fate"] == "merged"

    assert spoilt("row_ledger", merge)["code_variants_lost"] == 1


def test_an_answer_that_was_cut_is_found_in_the_stored_text(spoilt, honest: Finished):
    end = honest.table("samples")[0]["text"][-1]

    def cut(rows: Rows) -> None:
        rows[0]["text"] = rows[0]["text"].replace(rows[0]["answer"], rows[0]["answer"][:-9])

    found = spoilt("samples", cut)
    assert end
    assert found["answer_tokens_cut"] >= 1
    assert found["samples_not_trainable"] == 1


def test_an_answer_that_was_cut_before_it_was_stored_is_found_in_the_raw_row(spoilt):
    def cut(rows: Rows) -> None:
        row = next(r for r in rows if r["kind"] == "work_order")
        for name in ("answer", "repair"):
            row[name] = row[name][:-6]
        row["text"] = row["text"].replace(row["answer"], row["answer"][:-6])

    assert spoilt("samples", cut)["answer_tokens_cut"] >= 1


def test_a_sample_without_an_end_token_or_an_answer_is_not_trainable(spoilt):
    def strip(rows: Rows) -> None:
        rows[0]["text"] = rows[0]["text"].removesuffix(rows[0]["text"][-10:])
        rows[1]["answer"] = ""

    found = spoilt("samples", strip)
    assert found["samples_not_trainable"] == 2
    assert found["valid_format_share"] < 1


def test_shares_and_counts_follow_the_artifacts(spoilt, honest: Finished):
    def quarantine(rows: Rows) -> None:
        for row in rows:
            if row["fate"] == "kept":
                row.update(fate="quarantined", reason="x", sample_ids=[])

    found = spoilt("row_ledger", quarantine)
    assert found["quarantined_share"] > 0.15
    samples = honest.table("samples")
    found = spoilt("samples", lambda rows: [dict(r, bucket=0) for r in rows])
    longest = max(s["n_tokens"] for s in samples)
    assert found["longest_sample"] == longest
    assert found["padding_share"] == pytest.approx(1 - sum(s["n_tokens"] for s in samples) / longest / len(samples))


def test_the_verifier_shares_no_code_with_the_stage():
    mine = [p for name in ("data*", "raw_*", "personal", "findings") for p in Path("tasks/verify").glob(f"{name}.py")]
    for path in sorted(mine):
        names = [
            name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        ]
        assert names
        assert not [name for name in names if name.startswith(("tasks.data", "flows", "agents"))], path
