"""What a report shows of a stage beside its verdicts, read from its artifacts. Missing artifacts: no section."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agents import report_data, report_dry_run, report_stress, report_trials
from agents.blocks import Block, Cell, Heading, Table
from agents.report_parts import as_fed, sample_block
from agents.report_texts import t
from specs.base import Language
from specs.files import read_document, read_lines
from specs.units import human

_SAMPLES_SHOWN = 3
_GENERATIONS_SHOWN = 16


def stage_blocks(stage: str, artifacts: Path, language: Language) -> list[Block]:
    """The sections of a built-in stage; none for stages that people add."""
    sections = _SECTIONS.get(stage, ())
    return [block for section in sections for block in section(artifacts, language)]


Section = Callable[[Path, Language], list[Block]]

# -- training


def _losses(artifacts: Path, language: Language) -> list[Block]:
    rows = [r for r in read_lines(artifacts / "metrics.jsonl", missing_ok=True) if r.get("loss") is not None]
    if not rows:
        return []
    values = [float(r["loss"]) for r in rows]
    seconds = [float(r["seconds"]) for r in rows if r.get("seconds") is not None]
    found = [
        ("first_loss", human(values[0], "nats/token", language)),
        ("lowest_loss", human(min(values), "nats/token", language)),
        ("last_loss", human(values[-1], "nats/token", language)),
    ]
    if seconds:
        found.append(("step_seconds", human(statistics.median(seconds), "s", language)))
    if all(r.get("tokens") is not None for r in rows):
        found.append(("tokens_total", human(sum(r["tokens"] for r in rows), "tokens", language)))
    table = [[Cell(t(language, key)), Cell(value, number=True)] for key, value in found]
    return [Heading(t(language, "losses")), Table(["", t(language, "value")], table)]


def _fed_samples(artifacts: Path, language: Language) -> list[Block]:
    samples: list[Block] = []
    for row in read_lines(artifacts / "fed.jsonl", missing_ok=True)[:_SAMPLES_SHOWN]:
        text, learnt = str(row.get("text", "")), str(row.get("learnt", ""))
        context = text.removesuffix(learnt) if learnt and text.endswith(learnt) else text
        samples.append(sample_block(str(row.get("sample_id", "")), context, learnt, language, row.get("parts")))
    return as_fed(samples, language)


# -- stress test


def _phases(artifacts: Path, language: Language) -> list[Block]:
    from tasks.phases import phase_bytes, phase_order
    from tasks.plot_text import phase

    account, measurement = read_document(artifacts / "account.json"), read_document(artifacts / "measurement.json")
    predicted, measured = phase_bytes(account, measurement)
    table = [
        [
            Cell(phase(language, name)),
            Cell(human(predicted[name], "bytes", language) if name in predicted else "—", number=True),
            Cell(human(measured[name], "bytes", language) if name in measured else "—", number=True),
        ]
        for name in phase_order(predicted, measured)
    ]
    if not table:
        return []
    return [Heading(t(language, "phases")), Table([t(language, k) for k in ("phase", "predicted", "value")], table)]


def _residents(artifacts: Path, language: Language) -> list[Block]:
    """What the predicted peak is made of."""
    from tasks.plot_text import resident

    found = read_document(artifacts / "account.json").get("residents")
    if not isinstance(found, Mapping) or not found:
        return []
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    table = [[Cell(resident(language, n)), Cell(human(v, "bytes", language), number=True)] for n, v in ranked]
    return [Heading(t(language, "residents"), 3), Table([t(language, "resident"), t(language, "predicted")], table)]


# -- evaluation


def _generations(artifacts: Path, language: Language) -> list[Block]:
    rows = read_lines(artifacts / "generations.jsonl", missing_ok=True)[:_GENERATIONS_SHOWN]
    if not rows:
        return []
    keys = ("prompt", "reference", "base", "adapter")
    said = [{**row, "prompt": "\n".join(filter(None, (row.get("before"), _answer(row.get("prompt")))))} for row in rows]
    table = [[Cell(_answer(row.get(key)), data=True) for key in keys] for row in said]
    header = [t(language, k) for k in ("question", "reference", "base", "adapter")]
    return [Heading(t(language, "generations")), Table(header, table)]


def _answer(value: Any) -> str:
    """The text of an answer, whether it stands alone or in an object with its text."""
    return str(value.get("text", "")) if isinstance(value, Mapping) else str(value or "")


_SECTIONS: dict[str, tuple[Section, ...]] = {
    "data": (
        report_data.fates,
        report_data.percentiles,
        report_data.distributions,
        report_data.joins,
        report_data.personal_data,
        report_data.sensor_logs,
        report_data.samples,
    ),
    "dry_run": (
        _losses,
        report_dry_run.throughput,
        report_trials.trials,
        report_dry_run.checks,
        _fed_samples,
        report_dry_run.answers,
    ),
    "stress_test": (
        report_stress.ladder,
        _phases,
        report_stress.figures,
        report_stress.calibration,
        report_stress.times,
        _residents,
    ),
    "train": (_losses,),
    "evaluate": (_generations,),
}
