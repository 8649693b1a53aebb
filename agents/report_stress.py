"""What the report of a stress test shows beside its phases: peaks apart, calibration, ladder, times by bucket."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.blocks import Block, Cell, Heading, Paragraph, Table
from agents.metric_reasons import said_after
from agents.report_texts import t
from specs.base import Language
from specs.files import read_document, read_lines
from specs.units import human, significant


def figures(artifacts: Path, language: Language) -> list[Block]:
    """The peak as the allocator, its cache, and the driver or kernel count it."""
    found = read_document(artifacts / "measurement.json")
    names = ("peak_allocated_bytes", "peak_reserved_bytes", "peak_process_bytes", "peak_driver_bytes")
    rows = [
        [Cell(t(language, name)), Cell(human(found[name], "bytes", language), number=True)]
        for name in names
        if found.get(name) is not None
    ]
    if not rows:
        return []
    blocks: list[Block] = [Heading(t(language, "peaks"), 3), Table(["", t(language, "value")], rows)]
    if found.get("driver_source"):
        blocks.append(
            Paragraph(said_after(language, t(language, "peak_driver_bytes"), found["driver_source"]), "quiet")
        )
    return blocks


def calibration(artifacts: Path, language: Language) -> list[Block]:
    """The account before the test, what was measured, and the account as it is calibrated from here on."""
    found = read_document(artifacts / "calibration.json")
    if not found:
        return []
    predicted, measured = found["predicted"], found["measured"]
    ratio, framework = float(found["ratio"]), int(found["framework_bytes"])
    if found.get("confirmed"):
        ratio, framework = 1.0, int(predicted["framework_bytes"])
    rule = "calibration_confirmed" if found.get("confirmed") else "calibration_rule"
    calibrated = {
        "framework_bytes": framework,
        "held_bytes": round(ratio * predicted["held_bytes"]),
        "process_bytes": framework + round(ratio * predicted["held_bytes"]),
    }
    rows = []
    for name in ("framework_bytes", "held_bytes", "process_bytes"):
        values = [human(source[name], "bytes", language) for source in (predicted, measured, calibrated)]
        rows.append([Cell(t(language, f"calibrated_{name}")), *(Cell(value, number=True) for value in values)])
    header = ["", *(t(language, key) for key in ("predicted", "value", "calibrated"))]
    return [
        Heading(t(language, "calibration"), 3),
        Table(header, rows),
        Paragraph(t(language, rule, ratio=significant(ratio, 4)), "quiet"),
    ]


def ladder(artifacts: Path, language: Language) -> list[Block]:
    """Every rung, when more than the approved configuration was run."""
    rungs = read_lines(artifacts / "ladder.jsonl", missing_ok=True)
    if len(rungs) < 2:
        return []
    rows = [
        [
            Cell(str(rung["number"]), number=True),
            Cell(t(language, f"rung_{rung['rung']}")),
            Cell(_changes(rung), data=True),
            Cell(t(language, "rung_taken" if rung["taken"] else f"outcome_{rung['outcome']}")),
            Cell("" if rung["peak_bytes"] is None else human(rung["peak_bytes"], "bytes", language), number=True),
            Cell(rung["why"], data=True),
        ]
        for rung in rungs
    ]
    header = ["", *(t(language, key) for key in ("rung", "parameter", "result", "peak", "because"))]
    return [Heading(t(language, "ladder")), Table(header, rows)]


def _changes(rung: Mapping[str, Any]) -> str:
    parts = [f"{path} {value}" for path, value in rung["changes"].items()]
    return ", ".join([*parts, *([f"<= {rung['longest']} tokens"] if rung.get("longest") else [])])


def times(artifacts: Path, language: Language) -> list[Block]:
    """Seconds of a step and padded tokens per second, by bucket of lengths."""
    found = read_document(artifacts / "measurement.json").get("buckets") or []
    rows = [
        [
            Cell(str(row["bucket"]), number=True),
            Cell(human(row["planned_steps"], "steps", language), number=True),
            Cell(human(row["seconds_per_step"], "s", language), number=True),
            Cell(human(row["padded_tokens_per_second"], "tokens/s", language), number=True),
        ]
        for row in found
    ]
    if not rows:
        return []
    header = [t(language, key) for key in ("bucket", "planned_steps", "step_seconds", "padded_per_second")]
    return [Heading(t(language, "bucket_times"), 3), Table(header, rows)]
