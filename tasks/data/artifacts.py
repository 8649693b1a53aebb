"""The artifacts of the data stage: Parquet and JSON, the same bytes for the same input."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from specs.files import storage_errors, sync_folder, write_bytes, write_json
from tasks.data.preparing import Prepared
from tasks.data.records import Intake, turns_before
from tasks.data.shards import Shards
from tasks.turns import COLUMN, rows_of

_STRING, _INT, _FLOAT = pa.string(), pa.int32(), pa.float64()


def _schema(strings: str, *others: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*((name, _STRING) for name in strings.split()), *others])


SAMPLES = _schema(
    "sample_id split source location kind device_model phenomenon steps repair prompt answer text fault_type",
    ("n_tokens", _INT),
    ("bucket", _INT),
    ("component", _INT),
    (COLUMN, pa.list_(pa.struct([("role", _STRING), ("text", _STRING), ("learnt", pa.bool_())]))),
)
ROW_LEDGER = _schema(
    "source location fate reason merged_into",
    ("sample_ids", pa.list_(_STRING)),
    ("cut_tokens", _INT),
    ("messages_left_out", _INT),
)
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


def write_artifacts(
    folder: Path,
    shards: Shards,
    intake: Intake,
    prepared: Prepared,
    ledger: pl.DataFrame,
    masked: Sequence[Mapping[str, Any]],
) -> None:
    """Write every Parquet file, `decoding.json`, `held_out.json` and `buckets.json`. `ledger` holds the `fates`."""
    _write_frames(folder / "samples.parquet", SAMPLES, _samples(prepared))
    _write_frames(folder / "row_ledger.parquet", ROW_LEDGER, ledger.iter_slices(ROWS_AT_ONCE))
    _write_frames(folder / "review_pairs.parquet", REVIEW_PAIRS, prepared.review.iter_slices(ROWS_AT_ONCE))
    _write_frames(folder / "quarantine.parquet", QUARANTINE, [_quarantine(shards, prepared, ledger)])
    write_table(
        folder / "paragraphs.parquet",
        PARAGRAPHS,
        [{"source": u.source, "location": u.location, "text": u.original} for u in intake.paragraphs],
    )
    write_table(folder / "masked.parquet", MASKED, masked)
    write_table(folder / "windows.parquet", WINDOWS, intake.windows)
    write_json(folder / "decoding.json", {"files": sorted(intake.decoding, key=lambda f: (f["source"], f["sheet"]))})
    counts = np.bincount(prepared.samples.frame["bucket"].to_numpy(), minlength=len(prepared.edges)).tolist()
    held_out = prepared.samples.frame.filter(split="eval")["sample_id"]
    write_json(folder / "held_out.json", {"sample_ids": held_out.sort().to_list()})
    write_json(folder / "buckets.json", {"edges": prepared.edges, "samples": counts, "unit": "tokens"})


ROWS_AT_ONCE = 65_536
"""Rows of a row group."""


def write_table(path: Path, schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as Parquet, atomically; a missing value is null."""
    columns = {field.name: [row.get(field.name) for row in rows] for field in schema}
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns, schema=schema), buffer, compression="zstd")
    write_bytes(path, buffer.getvalue())


def _write_frames(path: Path, schema: pa.Schema, frames: Iterable[pl.DataFrame]) -> None:
    """Write frames as Parquet, atomically, a row group each; equal frames give equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with storage_errors(path), part.open("wb") as file:
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for frame in frames:
                if len(frame):
                    writer.write_table(frame.select(schema.names).to_arrow().cast(schema))
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    sync_folder(path.parent)


def _samples(prepared: Prepared) -> Iterator[pl.DataFrame]:
    """The samples, shard by shard."""
    samples, template = prepared.samples, prepared.samples.shards.recipe.template
    columns = ["source", "location", "kind", "device_model", "phenomenon", "steps", "repair", "fault_type", "answer"]
    before = ["system", "earlier", "unlearnt", "silent"]
    for start, frame in samples.select([*columns, *before, "rendered_prompt", "n_tokens"]):
        told = samples.frame.slice(start, len(frame)).select("sample_id", "split", "bucket", "component")
        turns = [turns_before(*row) for row in frame.select(before).iter_rows()]
        texts = map(template.text, frame["rendered_prompt"].to_list(), frame["answer"].to_list(), turns)
        yield (
            frame.drop(before)
            .rename({"rendered_prompt": "prompt"})
            .with_columns(
                pl.col("steps").list.join("\n"),
                pl.Series("text", list(texts), pl.String),
                pl.Series(COLUMN, [rows_of(one) for one in turns], _TURNS),
                *told.get_columns(),
            )
        )


_TURNS = pl.List(pl.Struct({"role": pl.String, "text": pl.String, "learnt": pl.Boolean}))


def fates(shards: Shards, prepared: Prepared) -> pl.DataFrame:
    """One line for every unit, in the order of its file: its fate, why, into what, and what became of it.

    A unit that several samples were made of (a conversation) is kept when one of them is, and merged when all are.
    """
    key = pl.concat_str("source", "location", separator="|")
    rows, merged = prepared.rows, prepared.merged
    into = pl.Series("merged_into", np.where(merged.into >= 0, merged.into, 0))
    keys = rows.select(key).to_series()
    unusable, gone = pl.col("unusable") != "", pl.col("gone")
    made = rows.select("source", "location", "unusable").with_columns(
        pl.Series("gone", merged.into >= 0),
        pl.Series("exact", merged.exact),
        (keys[into.to_numpy()] if len(rows) else keys).alias("target"),
    )
    made = made.select(
        "source",
        "location",
        pl.when(unusable)
        .then(pl.lit("quarantined"))
        .when(gone)
        .then(pl.lit("merged"))
        .otherwise(pl.lit("kept"))
        .alias("fate"),
        pl.when(unusable)
        .then(pl.col("unusable"))
        .when(gone & pl.col("exact"))
        .then(pl.lit("exact_duplicate"))
        .when(gone)
        .then(pl.lit("near_duplicate"))
        .otherwise(pl.lit(""))
        .alias("reason"),
        pl.when(gone).then(pl.col("target")).otherwise(pl.lit("")).alias("merged_into"),
    )
    given = [frame.select(made.columns) for frame in shards.fates()]
    order = pl.Enum(["kept", "merged", "quarantined", "out_of_scope"])
    ledger = pl.concat([made, *given]).sort(pl.col("fate").cast(order), maintain_order=True)
    ledger = ledger.unique(["source", "location"], keep="first", maintain_order=True)
    of_unit = prepared.samples.frame.group_by("source", "location", maintain_order=True).agg(
        pl.col("sample_id").alias("sample_ids"),
        pl.col("cut_tokens").sum(),
        pl.col("left_out").sum().alias("messages_left_out"),
    )
    ledger = ledger.join(of_unit, on=["source", "location"], how="left").with_columns(
        pl.col("sample_ids").fill_null([]),
        pl.col("cut_tokens", "messages_left_out").fill_null(0),
    )
    before = pl.col("location").str.replace(r"#\d+$", "")
    number = pl.col("location").str.extract(r"#(\d+)$").cast(pl.Int64)
    return ledger.sort("source", before, number)


def _quarantine(shards: Shards, prepared: Prepared, ledger: pl.DataFrame) -> pl.DataFrame:
    """The quarantined units with their text as it was read."""
    names = QUARANTINE.names
    unusable = np.flatnonzero((prepared.rows["unusable"] != "").to_numpy())
    columns = ["source", "location", "unusable", "original"]
    frames = [
        *(f.filter(pl.col("fate") == "quarantined").select(names) for f in shards.fates()),
        *(f.rename({"unusable": "reason"}).select(names) for f in shards.select(columns, unusable)),
    ]
    if not frames:
        return pl.DataFrame(schema=dict.fromkeys(names, pl.String))
    place = ["source", "location"]
    found = (
        pl.concat(frames)
        .join(ledger.filter(fate="quarantined"), on=place, how="semi")
        .unique(place, keep="first", maintain_order=True)
    )
    number = pl.col("location").str.extract(r"#(\d+)$").cast(pl.Int64)
    return found.sort("source", pl.col("location").str.replace(r"#\d+$", ""), number, maintain_order=True)
