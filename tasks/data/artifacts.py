"""The artifacts of the data stage: Parquet and JSON, the same bytes for the same input."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specs.files import write_bytes, write_json
from tasks.data.preparing import Prepared, Sample
from tasks.data.records import Fate, Intake

_STRING, _INT, _FLOAT = pa.string(), pa.int32(), pa.float64()


def _schema(strings: str, *others: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*((name, _STRING) for name in strings.split()), *others])


SAMPLES = _schema(
    "sample_id split source location kind device_model phenomenon steps repair prompt answer text fault_type",
    ("n_tokens", _INT),
    ("bucket", _INT),
    ("component", _INT),
)
ROW_LEDGER = _schema("source location fate reason merged_into", ("sample_ids", pa.list_(_STRING)), ("cut_tokens", _INT))
REVIEW_PAIRS = _schema("source location_a source_b location_b why text_a text_b", ("similarity", _FLOAT))
QUARANTINE = _schema("source location reason original")
MASKED = _schema("source location place kind", ("items", _INT), ("characters", _INT))
PARAGRAPHS = _schema("source location text")
_TIME = pa.timestamp("ms", tz="UTC")
WINDOWS = _schema(
    "source location fault_type channel",
    ("segment", _INT),
    ("start", _TIME),
    ("end", _TIME),
    ("rows", _INT),
    *((name, _FLOAT) for name in ("mean", "std", "minimum", "maximum", "slope_per_s", "rms")),
)


def write_artifacts(folder: Path, intake: Intake, prepared: Prepared, masked: Sequence[Mapping[str, Any]]) -> None:
    """Write every Parquet file, `decoding.json` and `buckets.json`."""
    fates = sorted(prepared.fates, key=lambda fate: _place(fate.unit.source, fate.unit.location))
    write_table(folder / "samples.parquet", SAMPLES, [_sample_row(s) for s in prepared.samples])
    write_table(folder / "row_ledger.parquet", ROW_LEDGER, [_ledger_row(f, prepared) for f in fates])
    write_table(folder / "review_pairs.parquet", REVIEW_PAIRS, prepared.review)
    write_table(folder / "quarantine.parquet", QUARANTINE, [_quarantine_row(f) for f in fates if _quarantined(f)])
    write_table(
        folder / "paragraphs.parquet",
        PARAGRAPHS,
        [{"source": u.source, "location": u.location, "text": u.original} for u in intake.paragraphs],
    )
    write_table(folder / "masked.parquet", MASKED, masked)
    write_table(folder / "windows.parquet", WINDOWS, intake.windows)
    write_json(folder / "decoding.json", {"files": sorted(intake.decoding, key=lambda f: (f["source"], f["sheet"]))})
    counts = [sum(s.bucket == i for s in prepared.samples) for i in range(len(prepared.edges))]
    write_json(folder / "buckets.json", {"edges": prepared.edges, "samples": counts, "unit": "tokens"})


def write_table(path: Path, schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as Parquet, atomically; a missing value is null."""
    columns = {field.name: [row.get(field.name) for row in rows] for field in schema}
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns, schema=schema), buffer, compression="zstd")
    write_bytes(path, buffer.getvalue())


def _place(source: str, location: str) -> tuple[str, str, int]:
    before, _, number = location.rpartition("#")
    return source, before, int(number)


def _sample_row(sample: Sample) -> dict[str, Any]:
    m, draft = sample.measured, sample.measured.draft
    return {
        "sample_id": sample.sample_id,
        "split": sample.split,
        "source": draft.unit.source,
        "location": draft.unit.location,
        "kind": draft.kind,
        "device_model": draft.device_model,
        "phenomenon": draft.phenomenon,
        "steps": "\n".join(draft.steps),
        "repair": draft.repair,
        "prompt": m.prompt,
        "answer": m.answer,
        "text": sample.text,
        "fault_type": draft.fault_type,
        "n_tokens": m.n_tokens,
        "bucket": sample.bucket,
        "component": sample.component,
    }


def _ledger_row(fate: Fate, prepared: Prepared) -> dict[str, Any]:
    kept = fate.fate == "kept"
    return {
        "source": fate.unit.source,
        "location": fate.unit.location,
        "fate": fate.fate,
        "reason": fate.reason,
        "merged_into": fate.merged_into,
        "sample_ids": prepared.sample_ids[fate.unit.key] if kept else [],
        "cut_tokens": prepared.cut_tokens[fate.unit.key] if kept else 0,
    }


def _quarantined(fate: Fate) -> bool:
    return fate.fate == "quarantined"


def _quarantine_row(fate: Fate) -> dict[str, Any]:
    return {
        "source": fate.unit.source,
        "location": fate.unit.location,
        "reason": fate.reason,
        "original": fate.unit.original,
    }
