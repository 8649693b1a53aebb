"""What a report shows of a dry run beside its losses: batches and masks as checked, throughput by length, answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.blocks import Block, Cell, Heading, Paragraph, Table
from agents.report_parts import count
from agents.report_texts import t
from specs.base import Language
from specs.units import significant
from tasks.verify import training_logs as logs
from tasks.verify.trends import throughput_by_length


def checks(artifacts: Path, language: Language) -> list[Block]:
    """One step cut in two ways, and with other tokens where nothing is learnt: the losses side by side."""
    found = logs.document(artifacts / "checks.json")
    if not found:
        return []
    rows = [
        ("check_whole", "loss_whole"),
        ("check_split", "loss_split"),
        ("check_padding", "loss_padding_changed"),
        ("check_learnt", "loss_of_learnt_tokens"),
    ]
    table = [[Cell(t(language, key)), _exact(found[name])] for key, name in rows]
    legend = t(language, "checks_legend", samples=len(found["samples"]), masked=found["masked_tokens"])
    header = [t(language, "checked_step"), t(language, "loss")]
    return [Heading(t(language, "checks")), Paragraph(legend, "quiet"), Table(header, table)]


def _exact(value: float | None) -> Cell:
    """All digits: what is compared here differs in the last ones."""
    return Cell("—" if value is None else f"{value:.9g}", number=True)


def throughput(artifacts: Path, language: Language) -> list[Block]:
    """Tokens per second by the length of samples."""
    planned = logs.table(artifacts / "batch_plan.parquet")
    classes = throughput_by_length(planned, logs.lines(artifacts / "metrics.jsonl"))
    if not classes:
        return []
    table = [
        [
            Cell(f"{c.shortest}-{c.longest}" if c.longest > c.shortest else f"{c.longest}", number=True),
            count(c.steps),
            Cell(significant(c.tokens_per_second), number=True),
        ]
        for c in classes
    ]
    header = [t(language, key) for key in ("mean_length", "steps", "tokens_per_second")]
    return [Heading(t(language, "throughput")), Table(header, table)]


def answers(artifacts: Path, language: Language) -> list[Block]:
    """What the trained model answers to questions of the probe, and whether it stopped by itself."""
    rows = logs.lines(artifacts / "generated.jsonl")
    if not rows:
        return []
    table = [[Cell(row["sample_id"], data=True), Cell(row["text"], data=True), _ended(row, language)] for row in rows]
    header = [t(language, key) for key in ("sample", "answer_text", "ended")]
    return [Heading(t(language, "probe_answers")), Table(header, table)]


def _ended(row: Mapping[str, Any], language: Language) -> Cell:
    return Cell(t(language, "ended_yes" if row["ended"] else "ended_no", tokens=row["tokens"]))
