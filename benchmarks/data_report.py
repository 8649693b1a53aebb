"""Real public maintenance data through the data stage: every file, the fate of every row, in words and numbers.

    python benchmarks/data_report.py FOLDER [--write docs/data-report.md]

FOLDER holds the public sets named in CASES (their repositories and licences stand in the report). Each set becomes a
temporary project, runs through the real stage with the tokenizer of the tiny bilingual model, and is counted again by
the verifier. Nothing of the sets is copied into the repository.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow.parquet as pq

from specs.criteria import Metric
from specs.errors import GatewrightError
from specs.fates import reason_text
from specs.project import Hub, Project
from specs.stages import Quiet, StageContext
from tasks.data.stage import run
from tasks.models.resolve import resolve_base_model
from tasks.verify.data import metrics


@dataclass(frozen=True)
class Case:
    """One public set: where it comes from, how its files become sources, what its fates mean."""

    folder: str
    origin: str
    language: str
    sources: Sequence[dict[str, Any]]
    remark: str = ""
    prepare: Callable[[Path, Path], str] | None = None
    not_read: dict[str, str] = field(default_factory=dict)


def _token_blocks(source: Path, target: Path) -> str:
    """`RAW<TAB>normalised` tokens with a blank line between orders, as one instruction per order."""
    told = []
    for path in sorted(source.glob("*.norm")):
        blocks = [block for block in path.read_text("utf-8").split("\n\n") if block.strip()]
        records = []
        for block in blocks:
            pairs = [line.split("\t") for line in block.strip().split("\n")]
            raw, plain = (" ".join(pair[i] for pair in pairs if len(pair) == 2) for i in (0, 1))
            records.append({"instruction": f"Write out the abbreviations: {raw}", "output": plain})
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        (target / f"{path.stem}.jsonl").write_text(text, encoding="utf-8")
        path_lines = sum(1 for line in path.read_text("utf-8").split("\n") if line.strip())
        told.append(f"{path.name}: {path_lines:,} token lines in {len(blocks):,} orders")
    return "; ".join(told)


def _same_text(header: str, **more: str) -> dict[str, str]:
    """These sets name one text per order: problem and repair are told in one breath."""
    return {"phenomenon": header, "repair": header, **more}


ALARM = {"fault_type": "id", "cause": "{}.cause", "meaning": "{}.description", "remedy": "{}.solution"}
CASES = (
    *(
        Case(
            "dobot_alarms_zh_en",
            "github.com/Dobot-Arm/TCP-IP-Python-V3, MIT",
            language,
            [
                {
                    "kind": "fault_codes",
                    "path": f"{name}.json",
                    "columns": {f: h.format(key) for f, h in ALARM.items() if f != "cause"},
                    "device_model": model,
                }
                for name, model in (("alarm_controller", "controller"), ("alarm_servo", "servo"))
            ],
            "Alarms of two tables with numbers of their own: each table gets a device model, so that number 2 of the "
            "controller and number 2 of the servo stay two codes. `cause` is empty in every row and is left unmapped.",
        )
        for language, key in (("en", "en"), ("zh", "zh_CN"))
    ),
    Case(
        "nestor_excavators_en",
        "github.com/usnistgov/nestor, NIST public domain; data of the UWA Prognostics Data Library",
        "en",
        [
            {
                "kind": "work_orders",
                "path": "excavators.csv",
                "columns": _same_text("OriginalShorttext", device_model="Asset", date="BscStartDate"),
            },
        ],
        "The table has one text per order, mapped to both phenomenon and repair: enough to count fates, not enough to "
        "train on, which is why `gatewright check` refuses such a mapping in a project. Its quotes are escaped by "
        "backslashes. Equal texts of two machines are no duplicates of each other.",
        not_read={
            "vocab-excavators2018sexton-1g.csv": "a word list of another program, no maintenance records",
        },
    ),
    Case(
        "maintie_en",
        "github.com/nlp-tlp/maintie, MIT",
        "en",
        [{"kind": "work_orders", "path": "gold_release.json", "columns": _same_text("text")}],
        "One text per record, mapped as above; the annotations beside it are not read.",
    ),
    Case(
        "maintnorm_en",
        "github.com/nlp-tlp/maintnorm, MIT",
        "en",
        [{"kind": "instructions", "path": "*.jsonl"}],
        "Token lines in blocks are no format that Gatewright reads; this script writes each order as one instruction "
        "(abbreviations in, written-out words out) before the stage sees it.",
        _token_blocks,
    ),
    Case(
        "ai4i2020_en",
        "UCI AI4I 2020 by github.com/gabigol91/dataset, CC BY 4.0",
        "en",
        [{"kind": "sensor_logs", "path": "ai4i2020.csv", "timestamp": "UDI"}],
        "Independent snapshots numbered by `UDI`; no column is a time.",
    ),
    Case(
        "hydsys_en",
        "UCI hydraulic systems by github.com/kokikwbt/predictive-maintenance, CC BY 4.0",
        "en",
        [
            {"kind": "sensor_logs", "path": "*.txt.gz", "wide": {"seconds_per_row": 60}},
            {"kind": "manuals", "path": "description.txt", "encoding": "cp1252"},
        ],
        "Each row of a log is one cycle of 60 s, without header or time. The description is read as a manual, so that "
        "the stage has text to train on.",
        not_read={"profile.txt": "condition labels of the cycles: a table without header or codes, no source kind"},
    ),
)


@dataclass
class Outcome:
    """What came of one set."""

    case: Case
    prepared: str = ""
    refused: str = ""
    fates: dict[str, Counter[str]] = field(default_factory=dict)
    reasons: dict[str, Counter[tuple[str, str]]] = field(default_factory=dict)
    metrics: dict[str, Metric] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    logs: list[dict[str, Any]] = field(default_factory=list)
    encodings: dict[str, str] = field(default_factory=dict)


def run_case(case: Case, data: Path, model: Path) -> Outcome:
    """One set through the stage in a temporary project, and counted again by the verifier."""
    outcome = Outcome(case)
    with tempfile.TemporaryDirectory() as temporary:
        project = Path(temporary)
        for path in sorted((data / case.folder).iterdir()):
            if path.name != "SOURCE.txt":
                shutil.copyfile(path, project / path.name)
        if case.prepare:
            outcome.prepared = case.prepare(project, project)
        spec = Project.model_validate(
            {"project": "report", "language": case.language, "base_model": "tiny", "sources": list(case.sources)}
        )
        out = project / "runs" / "out"
        context = StageContext(
            run="report",
            stage="data",
            attempt=1,
            project_dir=project,
            spec=spec,
            parameters={},
            inputs={},
            base_model=model,
            base_model_sha256="0" * 64,
            out_dir=out,
            checkpoints_dir=out / "checkpoints",
        )
        try:
            outcome.notes = run(context, Quiet()).notes
        except GatewrightError as error:
            outcome.refused = f"{error.message}; way out: {error.hint}"
            return outcome
        _read(outcome, out / "artifacts")
        outcome.metrics = metrics(out, {}, context.model_dump(mode="json"))
    return outcome


def _read(outcome: Outcome, artifacts: Path) -> None:
    for row in pq.read_table(artifacts / "row_ledger.parquet", columns=["source", "fate", "reason"]).to_pylist():
        outcome.fates.setdefault(row["source"], Counter())[row["fate"]] += 1
        if row["fate"] != "kept":
            outcome.reasons.setdefault(row["source"], Counter())[row["fate"], row["reason"]] += 1
    summary = json.loads((artifacts / "summary.json").read_bytes())
    outcome.logs, outcome.encodings = summary["sensor_logs"], summary["encodings"]


FATES = ("kept", "merged", "quarantined", "out_of_scope")
SHOWN = (
    ("rows_total", "rows counted in the raw files"),
    ("rows_unaccounted", "rows without exactly one fate"),
    ("characters_unexplained", "characters lost"),
    ("code_variants_lost", "records merged despite another code"),
    ("samples_without_provenance", "samples that say something else than their source"),
    ("claims_unfounded", "claims that do not hold"),
    ("near_duplicate_leakage", "near duplicates across the split"),
    ("personal_data_masked", "personal data masked"),
    ("personal_data_left", "personal data left"),
    ("quarantined_share", "share in quarantine"),
)


def _section(outcome: Outcome, data: Path) -> Iterator[str]:
    case = outcome.case
    yield f"## {case.folder}, samples in {'Chinese' if case.language == 'zh' else 'English'}\n"
    yield f"{case.origin}. {case.remark}\n"
    if outcome.prepared:
        yield f"Written by the script before the run: {outcome.prepared}.\n"
    if outcome.refused:
        yield f"**Refused, nothing was read:** {outcome.refused}.\n"
    else:
        yield "| file | read as | rows | kept | merged | quarantined | out of scope |"
        yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
        for source, counts in sorted(outcome.fates.items()):
            figures = " | ".join(f"{counts[fate]:,}" for fate in FATES)
            yield f"| {source} | {outcome.encodings.get(source, '')} | {counts.total():,} | {figures} |"
        yield ""
        yield from _fates_in_words(outcome)
        yield "Counted again by the verifier: " + "; ".join(
            f"{title} {_figure(outcome.metrics[name])}" for name, title in SHOWN if name in outcome.metrics
        )
        yield ""
        for log in outcome.logs:
            yield (
                f"- {log['source']}: {log['windows']:,} windows of {log['readings'] // log['windows']:,} readings, "
                f"one every {log['step_s']:g} s"
            )
        if outcome.logs:
            yield ""
    names = {path.name for path in (data / case.folder).iterdir()}
    for name, why in case.not_read.items():
        if name in names:
            yield f"- {name} is not read: {why}.\n"


def _fates_in_words(outcome: Outcome) -> Iterator[str]:
    for source, counted in sorted(outcome.reasons.items()):
        for (fate, reason), n in sorted(counted.items(), key=lambda item: -item[1]):
            yield f"- {source}: {n:,} {fate.replace('_', ' ')}, `{reason}`: {reason_text(reason, 'en')}."
    for note in outcome.notes:
        yield f"- noted by the stage: {note}."
    yield ""


def _figure(metric: Metric) -> str:
    if metric.value is None:
        return metric.reason
    return f"{metric.value:.1%}" if metric.unit == "share" else f"{metric.value:,.0f}"


def report(outcomes: Sequence[Outcome], data: Path) -> str:
    """The page."""
    lines = [
        "# Real data through the data stage\n",
        "Made by `benchmarks/data_report.py` from public sets of maintenance data. Every file of every set is here: "
        "read, with the fate of all its rows, or refused or not read, with the reason. Figures are of that run.\n",
    ]
    for outcome in outcomes:
        lines.extend(_section(outcome, data))
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Run every case, print the page or write it."""
    parser = argparse.ArgumentParser(description="Real data through the data stage.")
    parser.add_argument("folder", type=Path, help="where the public sets lie")
    parser.add_argument("--write", type=Path, help="file to write instead of printing")
    parser.add_argument("--only", default="", help="run the cases whose folder holds this text")
    parser.add_argument("--home", type=Path, help="where the tiny model is kept; default: a temporary folder")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = chosen.home or Path(temporary)
        model = resolve_base_model("package:gatewright-tiny", home, Hub(), Quiet()).folder
        outcomes = []
        for case in CASES:
            if chosen.only in case.folder:
                print(f"{case.folder} ({case.language}) ...", file=sys.stderr, flush=True)
                outcomes.append(run_case(case, chosen.folder, model))
        text = report(outcomes, chosen.folder)
    if chosen.write:
        chosen.write.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
