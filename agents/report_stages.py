"""What a report shows of a stage beside its verdicts, read from its artifacts. Missing artifacts: no section."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.blocks import Block, Cell, Heading, Paragraph, Sample, Table
from agents.report_texts import t
from agents.units import human
from specs.base import Language

FATES = ("kept", "merged", "quarantined", "out_of_scope")
_MOST_REASONS = 15
_MOST_TYPES = 20
_SAMPLES_SHOWN = 3
_GENERATIONS_SHOWN = 16


def stage_blocks(stage: str, artifacts: Path, language: Language) -> list[Block]:
    """The sections of a built-in stage; none for stages that people add."""
    sections = _SECTIONS.get(stage, ())
    return [block for section in sections for block in section(artifacts, language)]


Section = Callable[[Path, Language], list[Block]]

# -- reading


def _columns(path: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a Parquet file with the named columns; none where the file or a column is missing."""
    import pyarrow.parquet as pq

    if not path.is_file() or not set(names) <= set(pq.read_schema(path).names):
        return []
    rows: list[dict[str, Any]] = pq.read_table(path, columns=list(names)).to_pylist()
    return rows


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def _count(value: float) -> Cell:
    return Cell(f"{value:,.0f}", number=True)


# -- data


def _fates(artifacts: Path, language: Language) -> list[Block]:
    rows = _columns(artifacts / "row_ledger.parquet", ["source", "fate", "reason"])
    if not rows:
        return []
    counts = Counter((str(r["source"]), str(r["fate"])) for r in rows)
    fates = [*FATES, *sorted({fate for _, fate in counts} - set(FATES))]
    table = []
    for source in sorted({source for source, _ in counts}):
        values = [counts[source, fate] for fate in fates]
        table.append([Cell(source, data=True), *(_count(v) for v in values), _count(sum(values))])
    totals = [sum(counts[s, fate] for s in {s for s, _ in counts}) for fate in fates]
    table.append([Cell(t(language, "total")), *(_count(v) for v in totals), _count(sum(totals))])
    header = [t(language, "source"), *(_fate(language, fate) for fate in fates), t(language, "total")]
    blocks: list[Block] = [Heading(t(language, "fates")), Table(header, table)]
    reasons = Counter((str(r["source"]), str(r["fate"]), str(r["reason"] or "")) for r in rows if r["fate"] != "kept")
    if reasons:
        ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        listed = [
            [Cell(source, data=True), Cell(_fate(language, fate)), Cell(reason, data=True), _count(n)]
            for (source, fate, reason), n in ranked[:_MOST_REASONS]
        ]
        if rest := sum(n for _, n in ranked[_MOST_REASONS:]):
            listed.append([Cell(t(language, "others")), Cell(""), Cell(""), _count(rest)])
        header = [t(language, key) for key in ("source", "fate", "reason", "rows")]
        blocks += [Heading(t(language, "reasons"), 3), Table(header, listed)]
    return blocks


def _fate(language: Language, fate: str) -> str:
    return t(language, f"fate.{fate}") if fate in FATES else fate


def _types(artifacts: Path, language: Language) -> list[Block]:
    rows = [r for r in _columns(artifacts / "samples.parquet", ["fault_type", "split"]) if r["fault_type"]]
    if not rows:
        return []
    counts = Counter((str(r["fault_type"]), str(r["split"])) for r in rows)
    total = Counter(str(r["fault_type"]) for r in rows)
    order = sorted(total, key=lambda name: (-total[name], name))
    table = [[Cell(n, data=True), _count(counts[n, "train"]), _count(counts[n, "eval"])] for n in order[:_MOST_TYPES]]
    if rest := order[_MOST_TYPES:]:
        sums = [sum(counts[n, split] for n in rest) for split in ("train", "eval")]
        table.append([Cell(t(language, "others")), *(_count(v) for v in sums)])
    return [Heading(t(language, "types")), Table([t(language, k) for k in ("fault_type", "train", "eval")], table)]


def _percentiles(artifacts: Path, language: Language) -> list[Block]:
    rows = _columns(artifacts / "samples.parquet", ["n_tokens", "split"])
    table = []
    for split in ("train", "eval"):
        values = sorted(r["n_tokens"] for r in rows if r["split"] == split)
        if values:
            points = [values[0], *(percentile(values, p) for p in (50, 90, 95, 99)), values[-1]]
            table.append([Cell(t(language, split)), _count(len(values)), *(_count(p) for p in points)])
    if not table:
        return []
    header = [t(language, "split"), t(language, "samples"), t(language, "shortest"), t(language, "median")]
    header += ["P90", "P95", "P99", t(language, "longest")]
    return [Heading(t(language, "percentiles")), Table(header, table)]


def percentile(ordered: Sequence[int], percent: int) -> int:
    """Nearest-rank percentile of sorted values: a value that occurs."""
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]


def _data_samples(artifacts: Path, language: Language) -> list[Block]:
    """The examples of summary.json, decoded from their tokens with the mask."""
    path = artifacts / "summary.json"
    examples = json.loads(path.read_bytes()).get("fed_examples", []) if path.is_file() else []
    samples: list[Block] = [
        Sample(str(e["sample_id"]), str(e["masked"]), str(e["learnt"]), _labels(language))
        for e in examples[:_SAMPLES_SHOWN]
    ]
    return _as_fed(samples, language)


def _labels(language: Language) -> tuple[str, str]:
    return t(language, "context_only"), t(language, "learnt")


def _as_fed(samples: list[Block], language: Language) -> list[Block]:
    if not samples:
        return []
    return [Heading(t(language, "as_fed")), Paragraph(t(language, "as_fed_legend"), "quiet"), *samples]


# -- training


def _losses(artifacts: Path, language: Language) -> list[Block]:
    rows = [r for r in _lines(artifacts / "metrics.jsonl") if r.get("loss") is not None]
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
    for row in _lines(artifacts / "fed.jsonl")[:_SAMPLES_SHOWN]:
        text, learnt = str(row.get("text", "")), str(row.get("learnt", ""))
        context = text.removesuffix(learnt) if learnt and text.endswith(learnt) else text
        samples.append(Sample(str(row.get("sample_id", "")), context, learnt, _labels(language)))
    return _as_fed(samples, language)


# -- stress test


def _phases(artifacts: Path, language: Language) -> list[Block]:
    from tasks.phases import phase_bytes, phase_order
    from tasks.plot_text import phase

    account, measurement = _document(artifacts / "account.json"), _document(artifacts / "measurement.json")
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

    found = _document(artifacts / "account.json").get("residents")
    if not isinstance(found, Mapping) or not found:
        return []
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    table = [[Cell(resident(language, n)), Cell(human(v, "bytes", language), number=True)] for n, v in ranked]
    return [Heading(t(language, "residents"), 3), Table([t(language, "resident"), t(language, "predicted")], table)]


def _document(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return found


# -- evaluation


def _generations(artifacts: Path, language: Language) -> list[Block]:
    rows = _lines(artifacts / "generations.jsonl")[:_GENERATIONS_SHOWN]
    if not rows:
        return []
    keys = ("prompt", "reference", "base", "adapter")
    table = [[Cell(_answer(row.get(key)), data=True) for key in keys] for row in rows]
    header = [t(language, k) for k in ("question", "reference", "base", "adapter")]
    return [Heading(t(language, "generations")), Table(header, table)]


def _answer(value: Any) -> str:
    """The text of an answer, whether it stands alone or in an object with its text."""
    return str(value.get("text", "")) if isinstance(value, Mapping) else str(value or "")


_SECTIONS: dict[str, tuple[Section, ...]] = {
    "data": (_fates, _percentiles, _types, _data_samples),
    "dry_run": (_losses, _fed_samples),
    "stress_test": (_phases, _residents),
    "train": (_losses,),
    "evaluate": (_generations,),
}
