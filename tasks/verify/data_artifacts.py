"""The artifacts of the data stage as files: whether each is there, whole, and of the form that it must have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specs.errors import VerificationFailed

_TEXTS = {
    "samples": "sample_id split source location kind device_model fault_type phenomenon steps repair "
    "prompt answer text",
    "row_ledger": "source location fate reason merged_into",
    "review_pairs": "source location_a source_b location_b why text_a text_b",
    "quarantine": "source location reason original",
    "masked": "source location place kind",
    "paragraphs": "source location text",
    "windows": "source location fault_type channel",
}
_OTHERS: dict[str, dict[str, str]] = {
    "samples": {"n_tokens": "number", "bucket": "number", "component": "number", "earlier": "list"},
    "row_ledger": {"sample_ids": "list", "cut_tokens": "number", "messages_left_out": "number"},
    "review_pairs": {"similarity": "number"},
    "masked": {"items": "number", "characters": "number"},
    "windows": {"start": "time", "end": "time", "rows": "number", "mean": "number", "segment": "number"},
}
_COLUMNS = frozenset(c for texts in _TEXTS.values() for c in texts.split()).union(*_OTHERS.values())
"""The columns of all tables; a table may have more of its own, but none of another's."""
_NEWER = frozenset({("masked", ""), ("samples", "earlier"), ("row_ledger", "messages_left_out")})
"""What runs of older code do not have: a whole file, or a column of one."""
_JSON = {
    "decoding.json": "files",
    "buckets.json": "edges",
    "held_out.json": "sample_ids",
    "summary.json": "samples",
}
_MAY_LACK = frozenset({"held_out.json", "summary.json"})
WAY_OUT = (
    "put the file back as it was when the attempt was published (a copy, a backup), or let the stage write new "
    "ones: gatewright rework, at the gate after it"
)


def require_artifacts(folder: Path) -> None:
    """Raise `VerificationFailed` that names every artifact which is damaged, with what is wrong with it."""
    wrong = [f"artifacts/{name}.parquet {fault}" for name in _TEXTS if (fault := _table_fault(folder, name))]
    wrong += [f"artifacts/{name} {fault}" for name in _JSON if (fault := _json_fault(folder, name))]
    if wrong:
        raise VerificationFailed("the artifacts of the data stage are damaged: " + "; ".join(wrong), WAY_OUT)


def _table_fault(folder: Path, name: str) -> str:
    """What is wrong with a table, in words; empty where nothing is."""
    path = folder / f"{name}.parquet"
    if fault := _file_fault(path):
        return "" if (name, "") in _NEWER and not path.exists() else fault
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"is no whole Parquet file ({_first_line(error)})"
    wanted = {**dict.fromkeys(_TEXTS[name].split(), "text"), **_OTHERS.get(name, {})}
    lacking = [column for column in wanted if column not in schema.names and (name, column) not in _NEWER]
    if lacking:
        return f"lacks the columns {', '.join(lacking)}: another table may have been put in its place"
    foreign = sorted(_COLUMNS.intersection(schema.names) - wanted.keys())
    if foreign:
        return f"has the columns {', '.join(foreign)}, which belong to another table: it may have been put in its place"
    odd = [c for c, kind in wanted.items() if c in schema.names and not _is(schema.field(c).type, kind)]
    return f"has another type of column in {', '.join(odd)}" if odd else ""


def _is(found: pa.DataType, kind: str) -> bool:
    if kind == "text":
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
    if kind == "list":
        return bool(pa.types.is_list(found) or pa.types.is_large_list(found))
    if kind == "time":
        return bool(pa.types.is_timestamp(found))
    return bool(pa.types.is_integer(found) or pa.types.is_floating(found))


def _json_fault(folder: Path, name: str) -> str:
    path = folder / name
    if fault := _file_fault(path):
        return "" if name in _MAY_LACK and not path.exists() else fault
    try:
        held: Any = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        return f"is no JSON that can be read ({_first_line(error)})"
    if not isinstance(held, dict) or _JSON[name] not in held:
        return f"has no {_JSON[name]!r}: another file may have been put in its place"
    return ""


def _file_fault(path: Path) -> str:
    if path.is_dir():
        return "is a folder, not a file"
    if not path.exists():
        return "is missing"
    if not path.is_file():
        return "is no file"
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        return f"cannot be opened ({error.strerror or error})"
    return "is empty" if empty else ""


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]


@contextmanager
def read_whole(path: Path) -> Iterator[None]:
    """Reading of an artifact: what fails in the middle of it says which one, and what to do."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise VerificationFailed(
            f"artifacts/{path.name} is damaged inside: it cannot be read to its end ({_first_line(error)})", WAY_OUT
        ) from error


def require_texts(rows: pa.RecordBatch | pa.Table, path: Path) -> None:
    """Raise `VerificationFailed` where a column of text has no text in a row."""
    for name in _TEXTS.get(path.stem, "").split():
        at = rows.schema.get_field_index(name)
        if at >= 0 and rows.column(at).null_count:
            raise VerificationFailed(
                f"artifacts/{path.name} is damaged inside: {name} has no text in {rows.column(at).null_count} rows, "
                "and every row has one",
                WAY_OUT,
            )
