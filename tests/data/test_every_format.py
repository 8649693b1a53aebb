"""One project with every format through the whole stage: the verifier finds every row and every character again."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specs.project import Project
from tasks.verify.data import metrics
from tests.data.test_documents import PAGE, full_docx, scanned_pdf
from tests.data.test_more_sources import run_on
from tests.data.test_table_formats import write_pdf
from tests.support.raw_project import WORDS, stage_context

CODES = {"fault_type": "id", "meaning": "zh.text", "remedy": "zh.remedy"}
ORDERS = {"phenomenon": "Problem", "repair": "Repair", "fault_type": "Code", "device_model": "Machine"}


def order(n: int) -> dict[str, str]:
    words = WORDS["en"]
    sign, part = words["signs"][n % 14], words["parts"][n % 10]
    repair = words["repairs"][n % 8].format(words["parts"][(n * 3 + 1) % 10])
    return {"Machine": f"VMC-{n % 3}", "Problem": f"The {part} {sign}", "Repair": repair, "Code": f"{n % 4:04d}"}


def project(folder: Path) -> list[dict[str, Any]]:
    """Sources of every kind, each in formats that the small projects of other tests do not have."""
    codes = [{"id": f"{n:04d}", "zh": {"text": f"第{n}号轴伺服过载", "remedy": f"检查第{n}号轴"}} for n in range(4)]
    (folder / "codes.json").write_text(json.dumps({"alarms": codes}), encoding="utf-8")
    write_pdf(
        folder / "codes.pdf", [["Code", "Text"], ["G07.1", "axis refused"]], [["Code", "Text"], ["NO172.3", "off"]]
    )
    orders = [order(n) for n in range(30)]
    lines = "\n".join([*map(json.dumps, orders[:10]), "broken"])
    (folder / "orders.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    pq.write_table(pa.Table.from_pylist(orders[10:20]), folder / "orders.parquet")
    rows = ["\t".join(orders[0]), *("\t".join(o.values()) for o in orders[20:])]
    (folder / "orders.tsv").write_bytes("\n".join(rows).encode("utf-16"))
    start = dt.datetime(2024, 5, 6)
    log = {"time": [start + dt.timedelta(seconds=n) for n in range(300)], "load": [float(n % 7) for n in range(300)]}
    pq.write_table(
        pa.table({**log, "event": ["0001" if n == 200 else None for n in range(300)]}), folder / "log.parquet"
    )
    (folder / "manual.html").write_text(PAGE, encoding="utf-8")
    full_docx(folder / "notes.docx")
    pq.write_table(pa.table({"messages": [chat("a b", "c d", "e f", "g h")]}), folder / "chat.parquet")
    return [
        {"kind": "fault_codes", "path": "codes.json", "columns": CODES},
        {"kind": "fault_codes", "path": "codes.pdf", "columns": {"fault_type": "Code", "meaning": "Text"}},
        {"kind": "work_orders", "path": "orders.*", "columns": ORDERS},
        {"kind": "sensor_logs", "path": "log.parquet", "timestamp": "time", "channels": ["load"], "event": "event"},
        {"kind": "manuals", "path": "manual.html"},
        {"kind": "notes", "path": "notes.docx"},
        {"kind": "instructions", "path": "chat.parquet"},
    ]


def chat(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


def test_every_row_and_character_of_every_format_is_accounted_for(tmp_path: Path, tiny_model: Path):
    tables, found = run_on(tmp_path, tiny_model, *project(tmp_path))
    assert (found["rows_unaccounted"], found["characters_unexplained"], found["samples_without_provenance"]) == (
        0,
        0,
        0,
    )
    assert (found["answer_tokens_cut"], found["code_variants_lost"], found["near_duplicate_leakage"]) == (0, 0, 0)
    sources = {row["source"] for row in tables["samples"]}
    assert sources >= {"codes.json", "codes.pdf", "orders.jsonl.gz", "orders.parquet", "orders.tsv", "manual.html"}
    assert {q["reason"] for q in tables["quarantine"]} >= {"not_a_json_object"}
    talks = [s for s in tables["samples"] if s["kind"] == "instruction"]
    assert [([t["text"] for t in s["earlier"]], s["answer"]) for s in talks] == [(["a b", "c d"], "g h")]
    joined = next(s for s in tables["samples"] if s["source"] == "orders.tsv" and s["fault_type"] == "0001")
    assert "第1号轴伺服过载" in joined["prompt"]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("tesseract"), reason="the program tesseract is not installed")
def test_the_verifier_recognises_pictures_of_text_by_itself(tmp_path: Path, tiny_model: Path):
    pytest.importorskip("pytesseract", reason="the extra ocr is not installed")
    scanned_pdf(tmp_path / "a.pdf")
    tables, found = run_on(tmp_path, tiny_model, {"kind": "manuals", "path": "a.pdf", "ocr": True})
    assert (found["rows_unaccounted"], found["characters_unexplained"]) == (0, 0)
    assert "G07.1" in "".join(s["answer"] for s in tables["samples"])


def test_a_character_that_the_stage_lost_is_found_in_each_format(tmp_path: Path, tiny_model: Path):
    sources = project(tmp_path)
    run_on(tmp_path, tiny_model, *sources)
    spec = Project.model_validate({"project": "p", "base_model": "m", "sources": sources})
    context = stage_context(tmp_path, spec, tiny_model, tmp_path / "out").model_dump(mode="json")
    (tmp_path / "manual.html").write_text(PAGE.replace("wear gloves", "wear two gloves"), encoding="utf-8")
    assert metrics(tmp_path / "out", {}, context)["characters_unexplained"].value == 3
    pq.write_table(pa.Table.from_pylist([order(n) for n in range(10, 21)]), tmp_path / "orders.parquet")
    assert metrics(tmp_path / "out", {}, context)["rows_unaccounted"].value == 1
