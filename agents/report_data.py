"""What a report shows of the data stage: fates, distributions with their smallest class, lengths, personal data,
sensor logs, and samples as they are fed. Read from the artifacts; missing artifacts: no section."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.blocks import Block, Cell, Heading, Paragraph, Table
from agents.report_parts import as_fed, count, sample_block
from agents.report_texts import t
from specs.base import Language
from specs.fates import reason_text
from specs.files import read_document
from specs.privacy import KIND_TITLES, KINDS
from specs.units import duration

FATES = ("kept", "merged", "quarantined", "out_of_scope")
_MOST_REASONS = 15
_MOST_ROWS = 20
_SAMPLES_SHOWN = 3
_LENGTH_KEYS = ("p5", "p25", "p50", "p75", "p90", "p95", "p99")


def fates(artifacts: Path, language: Language) -> list[Block]:
    """Rows of every source by fate, and why the others were not kept."""
    found = _groups(artifacts / "row_ledger.parquet", ("source", "fate", "reason"))
    if not found:
        return []
    counts: Counter[tuple[str, str]] = Counter()
    reasons: Counter[tuple[str, str, str]] = Counter()
    for (source, fate, reason), n in found.items():
        counts[source, fate] += n
        if fate != "kept":
            reasons[source, fate, reason] += n
    order = [*FATES, *sorted({fate for _, fate in counts} - set(FATES))]
    table = []
    for source in sorted({source for source, _ in counts}):
        values = [counts[source, fate] for fate in order]
        table.append([Cell(source, data=True), *(count(v) for v in values), count(sum(values))])
    totals = [sum(n for (_, f), n in counts.items() if f == fate) for fate in order]
    table.append([Cell(t(language, "total")), *(count(v) for v in totals), count(sum(totals))])
    header = [t(language, "source"), *(_fate(language, fate) for fate in order), t(language, "total")]
    return [Heading(t(language, "fates")), Table(header, table), *_reasons(reasons, language)]


def _reasons(reasons: Counter[tuple[str, str, str]], language: Language) -> list[Block]:
    if not reasons:
        return []
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    listed = [
        [
            Cell(source, data=True),
            Cell(_fate(language, fate)),
            Cell(reason, data=True),
            Cell(reason_text(reason, language), data=True),
            count(n),
        ]
        for (source, fate, reason), n in ranked[:_MOST_REASONS]
    ]
    if rest := sum(n for _, n in ranked[_MOST_REASONS:]):
        listed.append([Cell(t(language, "others")), Cell(""), Cell(""), Cell(""), count(rest)])
    header = [t(language, key) for key in ("source", "fate", "reason", "in_words", "rows")]
    return [Heading(t(language, "reasons"), 3), Table(header, listed)]


def _fate(language: Language, fate: str) -> str:
    return t(language, f"fate.{fate}") if fate in FATES else fate


def distributions(artifacts: Path, language: Language) -> list[Block]:
    """Samples by fault type, device model and source, each with its smallest class in training."""
    blocks: list[Block] = []
    for column, title in (("fault_type", "types"), ("device_model", "devices"), ("source", "by_source")):
        counts = _groups(artifacts / "samples.parquet", (column, "split"))
        named = {name for name, _ in counts if name}
        if not named:
            continue
        total = {name: counts.get((name, "train"), 0) + counts.get((name, "eval"), 0) for name in named}
        order = sorted(total, key=lambda name: (-total[name], name))
        shown = order[:_MOST_ROWS]
        table = [
            [Cell(n, data=True), count(counts.get((n, "train"), 0)), count(counts.get((n, "eval"), 0))] for n in shown
        ]
        if rest := order[_MOST_ROWS:]:
            sums = [sum(counts.get((n, split), 0) for n in rest) for split in ("train", "eval")]
            table.append([Cell(t(language, "others")), *(count(v) for v in sums)])
        smallest = min(order, key=lambda name: (counts.get((name, "train"), 0), name))
        few = [counts.get((smallest, split), 0) for split in ("train", "eval")]
        table.append([Cell(t(language, "smallest_is", name=smallest), data=True), *(count(v) for v in few)])
        header = [t(language, k) for k in (_COLUMN_TITLES[column], "train", "eval")]
        blocks += [Heading(t(language, title), 2 if not blocks else 3), Table(header, table)]
    return blocks


_COLUMN_TITLES = {"fault_type": "fault_type", "device_model": "device_model", "source": "source"}


def percentiles(artifacts: Path, language: Language) -> list[Block]:
    """Lengths of the samples by split, as percentiles that occur."""
    counts = _groups(artifacts / "samples.parquet", ("n_tokens", "split"))
    table = []
    for split in ("train", "eval"):
        lengths = sorted((int(n), times) for (n, s), times in counts.items() if s == split)
        if lengths:
            points = [lengths[0][0], *(percentile(lengths, int(key[1:])) for key in _LENGTH_KEYS), lengths[-1][0]]
            table.append([Cell(t(language, split)), count(sum(n for _, n in lengths)), *(count(p) for p in points)])
    if not table:
        return []
    header = [t(language, "split"), t(language, "samples"), t(language, "shortest"), "P5", "P25", t(language, "median")]
    header += ["P75", "P90", "P95", "P99", t(language, "longest")]
    return [Heading(t(language, "percentiles")), Table(header, table)]


def percentile(counted: Sequence[tuple[int, int]], percent: int) -> int:
    """Nearest-rank percentile of sorted (value, how often): a value that occurs."""
    rank = max(1, -(-percent * sum(n for _, n in counted) // 100))
    seen = 0
    for value, times in counted:
        seen += times
        if seen >= rank:
            return value
    return counted[-1][0]


def personal_data(artifacts: Path, language: Language) -> list[Block]:
    """What was masked in samples, by source and kind."""
    found = _sums(artifacts / "masked.parquet", ("source", "place", "kind"), "items")
    counts = {(source, kind): n for (source, place, kind), n in found.items() if place == "sample"}
    if not counts:
        return []
    kinds = [kind for kind in KINDS if any(k == kind for _, k in counts)]
    table = [
        [Cell(source, data=True), *(count(counts.get((source, kind), 0)) for kind in kinds)]
        for source in sorted({source for source, _ in counts})
    ]
    header = [t(language, "source"), *(KIND_TITLES[kind][language] for kind in kinds)]
    return [
        Heading(t(language, "personal_data")),
        Paragraph(t(language, "personal_legend"), "quiet"),
        Table(header, table),
    ]


def sensor_logs(artifacts: Path, language: Language) -> list[Block]:
    """Every log with its rate, windows, gaps, and what was wrong with its clock."""
    logs = read_document(artifacts / "summary.json").get("sensor_logs") or []
    if not logs:
        return []
    keys = ("readings", "channels", "windows", "gaps", "clock_backwards", "time_stands_twice")
    table = []
    for log in sorted(logs, key=lambda log: str(log["source"]))[:_MOST_ROWS]:
        figures = [count(log[key]) for key in keys]
        no_time = log["no_readable_time"] + log["time_does_not_exist"]
        step = Cell(duration(float(log["step_s"])), number=True)
        # a clock that was set back parts a log too, without a gap
        gap = Cell(duration(float(log["longest_gap_s"])) if log["gaps"] else t(language, "nothing"), number=True)
        table.append([Cell(str(log["source"]), data=True), step, *figures, count(no_time), gap])
    header = [t(language, key) for key in ("source", "log_step", *(f"log_{key}" for key in keys))]
    header += [t(language, "log_no_time"), t(language, "log_longest_gap")]
    return [Heading(t(language, "sensor_logs")), Table(header, table)]


def samples(artifacts: Path, language: Language) -> list[Block]:
    """The examples of summary.json, decoded from their tokens with the mask."""
    examples = read_document(artifacts / "summary.json").get("fed_examples", [])[:_SAMPLES_SHOWN]
    shown = [
        sample_block(str(e["sample_id"]), str(e["masked"]), str(e["learnt"]), language, e.get("parts"))
        for e in examples
    ]
    return as_fed(shown, language)


def joins(artifacts: Path, language: Language) -> list[Block]:
    """How many work orders of each file found their fault code in a table."""
    found = read_document(artifacts / "summary.json").get("joins") or {}
    table = [
        [
            Cell(source, data=True),
            count(one["with_code"]),
            count(one["matched"]),
            Cell(_most(one["unmatched"]), data=True),
        ]
        for source, one in sorted(found.items())
    ]
    if not table:
        return []
    header = [t(language, key) for key in ("source", "join_with_code", "join_matched", "join_unmatched")]
    return [Heading(t(language, "joins")), Table(header, table)]


def _most(unmatched: Mapping[str, int]) -> str:
    ranked = sorted(unmatched.items(), key=lambda item: (-item[1], item[0]))
    listed = [f"{code} ({n})" for code, n in ranked[:_SAMPLES_SHOWN]]
    return ", ".join([*listed, "…"] if len(ranked) > len(listed) else listed)


def _groups(path: Path, names: Sequence[str]) -> dict[tuple[Any, ...], int]:
    """How often each combination of the named columns stands in a Parquet file; none where file or column is missing.

    Counted by columns: a report of a million rows costs no more than one of a thousand.
    """
    return _aggregate(path, names, ([], "count_all"))


def _sums(path: Path, names: Sequence[str], value: str) -> dict[tuple[Any, ...], int]:
    return _aggregate(path, names, (value, "sum"))


def _aggregate(path: Path, names: Sequence[str], how: tuple[Any, str]) -> dict[tuple[Any, ...], int]:
    import pyarrow.parquet as pq

    wanted = [*names, *([how[0]] if how[0] else [])]
    if not path.is_file() or not set(wanted) <= set(pq.read_schema(path).names):
        return {}
    counted = pq.read_table(path, columns=wanted).group_by(list(names)).aggregate([how])
    figure = next(name for name in counted.column_names if name not in names)
    columns = [counted.column(name).to_pylist() for name in (*names, figure)]
    return {tuple("" if v is None else v for v in row[:-1]): int(row[-1]) for row in zip(*columns, strict=True)}
