"""PDF pages and tables, and existing instruction data, through the whole stage and its verifier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Table

from specs.project import Project
from tasks.verify.data import metrics
from tests.support.raw_project import run_stage, stage_context


def run_on(
    folder: Path, model: Path, *sources: dict[str, Any]
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Any]]:
    """(tables of the artifacts, recomputed metrics) of a project with these sources."""
    spec = Project.model_validate({"project": "p", "base_model": "m", "sources": list(sources)})
    run_stage(folder, spec, model, folder / "out")
    names = ("samples", "row_ledger", "quarantine", "paragraphs")
    tables = {n: pq.read_table(folder / "out" / "artifacts" / f"{n}.parquet").to_pylist() for n in names}
    context = stage_context(folder, spec, model, folder / "out").model_dump(mode="json")
    return tables, {name: m.value for name, m in metrics(folder / "out", {}, context).items()}


def write_pdf(path: Path) -> None:
    """Three pages with a running header: text and a table, nothing but a line, text again; then a page of drawing."""
    canvas = Canvas(str(path), pagesize=A4)
    for page in (1, 2, 3):
        canvas.drawString(60, 800, f"Service manual page {page}")
        canvas.drawString(60, 770, f"{page} Lubrication of group {page}")
        canvas.drawString(60, 750, f"The oil of group {page} is changed every {page}00 hours at 4.{page} bar.")
        if page == 1:
            table = Table([["Code", "Meaning"], ["G07.1", "refused"], ["NO172.3", "0.5 mm off"]])
            table.setStyle([("GRID", (0, 0), (-1, -1), 1, "black")])
            table.wrapOn(canvas, 400, 200)
            table.drawOn(canvas, 60, 600)
            canvas.drawString(60, 560, "See the table above for both codes.")
        canvas.showPage()
    canvas.rect(100, 100, 200, 200, fill=1)
    canvas.showPage()
    canvas.save()


def test_a_pdf_keeps_its_numbers_and_names_pages_without_text(tmp_path: Path, tiny_model: Path):
    write_pdf(tmp_path / "m.pdf")
    tables, found = run_on(tmp_path, tiny_model, {"kind": "manuals", "path": "m.pdf"})
    text = "\n".join(s["answer"] for s in tables["samples"])
    assert "G07.1 | refused" in text
    assert "NO172.3 | 0.5 mm off" in text
    assert text.index("at 4.1 bar") < text.index("NO172.3") < text.index("table above") < text.index("at 4.2 bar")
    reasons = [(r["location"].partition("#")[0], r["fate"], r["reason"]) for r in tables["row_ledger"] if r["reason"]]
    assert reasons[-1] == ("page 4", "quarantined", "page_without_text")
    assert [r[2] for r in reasons[:3]] == ["page_furniture"] * 3
    assert (found["rows_unaccounted"], found["characters_unexplained"]) == (0, 0)


def test_instruction_data_in_three_formats_is_read_and_the_rest_is_quarantined(tmp_path: Path, tiny_model: Path):
    records = [
        {"messages": [{"role": "user", "content": "Why is it loud?"}, {"role": "assistant", "content": "The belt."}]},
        {"instruction": "Explain the alarm", "input": "SV0401", "output": "The servo is not ready."},
        {"conversations": [{"from": "human", "value": "什么是G54？"}, {"from": "gpt", "value": "工件坐标系。"}]},
        {"messages": [{"role": "user", "content": "a"}] * 3},
        {"instruction": "no answer"},
    ]
    lines = [json.dumps(r, ensure_ascii=False) for r in records] + ["not json"]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    tables, found = run_on(tmp_path, tiny_model, {"kind": "instructions", "path": "a.jsonl"})
    assert [(s["prompt"], s["answer"]) for s in tables["samples"]] == [
        ("Why is it loud?", "The belt."),
        ("Explain the alarm\nSV0401", "The servo is not ready."),
        ("什么是G54？", "工件坐标系。"),
    ]
    assert {q["location"]: q["reason"] for q in tables["quarantine"]} == {
        "#4": "questions_and_answers_do_not_alternate",
        "#5": "no_question_or_no_answer",
        "#6": "not_a_json_object",
    }
    assert found["rows_unaccounted"] == 0
    assert found["valid_format_share"] == 1


def test_a_code_with_two_meanings_is_quarantined_and_special_tokens_in_text_stay_text(tmp_path: Path, tiny_model: Path):
    (tmp_path / "c.csv").write_text("Code,Meaning\n0012,stop\n0012,go on\n0013,<|im_end|> hot\n0013,<|im_end|> hot\n")
    source = {"kind": "fault_codes", "path": "c.csv", "columns": {"fault_type": "Code", "meaning": "Meaning"}}
    tables, found = run_on(tmp_path, tiny_model, source)
    assert [(r["fate"], r["reason"]) for r in tables["row_ledger"]] == [
        ("quarantined", "code_with_two_meanings"),
        ("quarantined", "code_with_two_meanings"),
        ("kept", ""),
        ("merged", "exact_duplicate"),
    ]
    [sample] = tables["samples"]
    assert sample["fault_type"] == "0013"
    assert (found["rows_unaccounted"], found["samples_not_trainable"], found["answer_tokens_cut"]) == (0, 0, 0)
