"""Existing instruction data: every record, with all its turns, becomes one draft or gets its fate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from specs.errors import SourceError
from specs.parameters import DataParameters
from specs.sources import Instructions
from tasks.data.conversations import Conversation, Unusable, conversation_of, keys_not_read
from tasks.data.encoding import decode, visible
from tasks.data.files import base_name, encodable, read_bytes
from tasks.data.quoting import iter_lines
from tasks.data.records import Draft, Intake, SourceFile, Unit
from tasks.data.structured import as_json


def read_instructions(file: SourceFile, source: Instructions, intake: Intake, parameters: DataParameters) -> None:
    """Records of JSONL, JSON or Parquet. Raises `SourceError` for a file that holds no records."""
    for number, (raw, record) in enumerate(records_of(file, source.encoding, intake), start=1):
        whole = Unit(file.name, f"#{number}", raw)
        try:
            found = conversation_of(record)
        except Unusable as error:
            intake.drop(whole, "quarantined", str(error))
            continue
        if not encodable(found.system + "".join(q + a for q, a in found.turns)):
            intake.drop(whole, "quarantined", "damaged_text")
            continue
        intake.counts["questions_without_answer"] += found.unanswered
        intake.counts["answers_of_weight_0"] += len(found.silent) + found.left_out
        intake.counts["turns_after_last_learnt"] += found.left_out
        intake.keys_not_read.update(keys_not_read(record))
        intake.counts["records_of_several_turns"] += len(found.turns) > 1
        intake.drafts.append(_draft(whole, found, parameters.conversation_loss == "last_answer"))


def _draft(unit: Unit, found: Conversation, last_only: bool) -> Draft:
    *before, (question, answer) = found.turns
    return Draft(
        unit,
        "instruction",
        prompt=question,
        plain=answer,
        system=found.system,
        earlier=tuple(text for turn in before for text in turn),
        unlearnt=len(before) if last_only else 0,
        silent=() if last_only else found.silent,
        left_out=2 * found.left_out + found.unanswered,
    )


def records_of(file: SourceFile, declared: str, intake: Intake) -> Iterator[tuple[str, Any]]:
    """(text for quarantine, record) of every record; what decoding counted goes to the intake."""
    if base_name(file.name).endswith(".parquet"):
        count = 0
        for raw, record in _parquet_records(file):
            count += visible(raw)
            yield raw, record
        intake.decoding.append(_entry(file.name, "parquet", "file format", count, 0))
        return
    decoded = decode(read_bytes(file), file.name, declared)
    count = visible(decoded.text)
    intake.decoding.append(_entry(file.name, decoded.encoding, decoded.found_by, count, decoded.text.count("\ufffd")))
    yield from instruction_records(decoded.text, file.name)


def _entry(name: str, encoding: str, found_by: str, count: int, replaced: int) -> dict[str, Any]:
    return {
        "source": name,
        "sheet": "",
        "encoding": encoding,
        "found_by": found_by,
        "characters_in": count,
        "characters_out": count,
        "replacement_characters": replaced,
    }


def _parquet_records(file: SourceFile) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tasks.data.columnar import check_parquet_caps

    rows = 0
    try:
        opened = pq.ParquetFile(file.path)
        check_parquet_caps(opened.metadata, file.name)
        for batch in opened.iter_batches(batch_size=1024):
            for record in batch.to_pylist():
                rows += 1
                yield json.dumps(record, ensure_ascii=False, default=str), record
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SourceError(
            f"{file.name} is not a Parquet file that can be read: {str(error)[:200]}", "write it again"
        ) from error
    if not rows:
        raise SourceError(f"{file.name} holds no record", "give one record per row")


def instruction_records(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """(text, record) of every record of a JSON list or of JSON lines; a line that is no JSON is None.

    Raises `SourceError` where there is no record.
    """
    if base_name(name).endswith(".json"):
        yield from ((as_json(record), record) for record in _json_list(text, name))
        return
    rows = 0
    for line in iter_lines(text):
        if line.strip():
            rows += 1
            try:
                yield line.rstrip("\n"), json.loads(line)
            except (ValueError, RecursionError):
                yield line.rstrip("\n"), None
    if not rows:
        raise SourceError(f"{name} holds no record", "give one JSON object per line")


def _json_list(text: str, name: str) -> list[Any]:
    """The records of a JSON file: its list, or the only list of objects in its object."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{name} is not JSON that can be read: {error}", "give plain records, as JSONL") from error
    if isinstance(whole, dict):
        lists = [part for part in whole.values() if isinstance(part, list) and any(isinstance(r, dict) for r in part)]
        whole = lists[0] if len(lists) == 1 else None
    if not isinstance(whole, list) or not whole:
        raise SourceError(f"{name} is not a list of records", "give a list of records, or JSONL")
    return whole
