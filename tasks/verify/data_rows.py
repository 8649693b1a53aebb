"""Whether every raw row has exactly one fate, and every character is somewhere: raw files against the artifacts."""

from __future__ import annotations

import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from specs.parameters import DataParameters
from specs.privacy import PLACEHOLDERS
from tasks.turns import COLUMN
from tasks.verify import data_raw as raw
from tasks.verify import personal
from tasks.verify.data_artifacts import read_whole, require_artifacts, require_texts
from tasks.verify.data_sensors import sensor_faults
from tasks.verify.findings import Findings
from tasks.verify.parquet_rows import Keys, ParquetRows, difference, key_of, keys_of, place_of
from tasks.verify.raw_documents import folded, visible_characters

Row = dict[str, Any]


def _by_source(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["source"]].append(row)
    return dict(found)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """A Parquet file as a list of rows, for files that stay small."""
    with read_whole(path):
        table = pq.read_table(path)
    require_texts(table, path)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


MESSAGES = "messages_left_out"
"""Messages of a conversation that are in none of its samples, in the row ledger."""


class RawFiles:
    """The raw files of a project beside the artifacts of an attempt. `ledger` and `samples` are read by every loop."""

    def __init__(self, artifacts: Path, context: Mapping[str, Any]) -> None:
        require_artifacts(artifacts)
        self.spec = context["spec"]
        self.parameters = DataParameters.model_validate(context.get("parameters") or {})
        self.project_dir = Path(context["project_dir"])
        self.ledger = ParquetRows(artifacts / "row_ledger.parquet", whole=True)
        self.samples = ParquetRows(artifacts / "samples.parquet", whole=True)
        self.quarantine = ParquetRows(artifacts / "quarantine.parquet", whole=True)
        self.paragraphs = read_rows(artifacts / "paragraphs.parquet")
        self.windows = read_rows(artifacts / "windows.parquet")
        self.review = read_rows(artifacts / "review_pairs.parquet")
        masked = artifacts / "masked.parquet"
        self.masked = read_rows(masked) if masked.is_file() else []
        decoding = json.loads((artifacts / "decoding.json").read_bytes())["files"]
        self.decoding: list[Row] = list({(d["source"], d["sheet"]): d for d in decoding}.values())
        self.whole_conversations = COLUMN in pq.read_schema(self.samples.path).names
        """Whether a conversation is one sample; in older runs each of its answers was one."""
        self.counts_messages = MESSAGES in pq.read_schema(self.ledger.path).names
        """Whether the run is as new as this count: then its system texts keep records apart, and its answers end as
        the chat template ends them."""

    @cached_property
    def masked_characters(self) -> Counter[int]:
        """Characters of personal data masked in what was made of each place, whether it was kept or not."""
        found: Counter[int] = Counter()
        for m in self.masked:
            if m["place"] in ("sample", "left_out"):
                found[place_of(m["source"], m["location"])] += m["characters"]
        return found

    def files(self, *kinds: str) -> Iterator[tuple[str, Path, Mapping[str, Any]]]:
        """(name, path, source of the spec) of every raw file of the kinds."""
        for source in self.spec["sources"]:
            if source["kind"] in kinds:
                for name, path in raw.files_of(self.project_dir, source):
                    yield name, path, source

    def encoding(self, name: str) -> str:
        """The encoding that the stage recorded for a file."""
        return next((str(d["encoding"]) for d in self.decoding_of.get(name, ())), "")

    @cached_property
    def decoding_of(self) -> Mapping[str, list[Row]]:
        """The lines of `decoding.json` by file."""
        return _by_source(self.decoding)

    @cached_property
    def paragraphs_of(self) -> Mapping[str, list[Row]]:
        """The paragraphs by file."""
        return _by_source(self.paragraphs)

    @cached_property
    def windows_of(self) -> Mapping[str, list[Row]]:
        """The sensor windows by file."""
        return _by_source(self.windows)

    @cached_property
    def rows_in_no_window(self) -> Mapping[str, frozenset[int]]:
        """Numbers of the rows of sensor logs that have a fate of their own, by file."""
        found: defaultdict[str, set[int]] = defaultdict(set)
        for batch in self.ledger.batches(["source", "location"]):
            for row in batch:
                if row["location"].startswith("row#"):
                    found[row["source"]].add(int(row["location"].removeprefix("row#")))
        return {source: frozenset(numbers) for source, numbers in found.items()}

    def expected_units(self, rows: Keys) -> Keys:
        """Every unit that must have a fate: `rows` of tables and records, paragraphs and windows as they were cut."""
        units = [place_of(p["source"], p["location"]) for p in self.paragraphs]
        units += [place_of(source, at) for source, at in {(w["source"], w["location"]) for w in self.windows}]
        # rows of sensor logs that are in no window: checked against the file by `sensor_faults`
        units += [place_of(source, f"row#{n}") for source, numbers in self.rows_in_no_window.items() for n in numbers]
        return np.concatenate([rows, keys_of(units)])


def rows_unaccounted(files: RawFiles, expected: Keys, findings: Findings) -> int:
    """Units without exactly one fate, fates without a unit, and fates that do not hold together."""
    wrong, found = _broken_fates(files)
    wrong += difference(expected, found)
    return wrong + _holes(files) + sensor_faults(files, findings) + _swallowed(files)


def _swallowed(files: RawFiles) -> int:
    """Lines of the text tables that an unbalanced quote put into the cell of another row."""
    tables = files.files(*raw.TABLE_KINDS, "sensor_logs")
    return sum(raw.swallowed_lines(name, path, files.encoding(name)) for name, path, _ in tables)


def _broken_fates(files: RawFiles) -> tuple[int, Keys]:
    """(fates that do not hold, the units that have one).

    Kept without a sample, merged into what is not kept, quarantined without its original, unknown fates.
    """
    wrong = 0
    place, kept, quarantined, targets = array("Q"), array("Q"), array("Q"), array("Q")
    for batch in files.ledger.batches():
        for row in batch:
            key = place_of(row["source"], row["location"])
            place.append(key)
            if row["fate"] == "kept":
                kept.append(key)
                wrong += not row["sample_ids"]
            elif row["fate"] == "merged":
                targets.append(key_of(str(row["merged_into"])))
            else:
                wrong += row["fate"] not in ("quarantined", "out_of_scope") or not row["reason"]
            if row["fate"] == "quarantined":
                quarantined.append(key)
    originals = keys_of(
        place_of(q["source"], q["location"])
        for batch in files.quarantine.batches(["source", "location"])
        for q in batch
    )
    wrong += difference(originals, np.unique(keys_of(quarantined)))
    wrong += int((~np.isin(keys_of(targets), keys_of(kept))).sum())
    return wrong, keys_of(place)


def _holes(files: RawFiles) -> int:
    """Numbers that are missing or double among the paragraphs and windows of a file; files without any."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for p in files.paragraphs:
        numbers[p["source"]].append(int(p["location"].rpartition("#")[2]))
    for source, location in sorted({(w["source"], w["location"]) for w in files.windows}):
        numbers[source].append(int(location.rpartition("#")[2]))
    wrong = 0
    for name, _, _ in files.files(*raw.DOCUMENT_KINDS, "sensor_logs"):
        found = sorted(numbers.pop(name, []))
        wrong += (Counter(range(1, max(found, default=1) + 1)) - Counter(found)).total()
        wrong += len(found) - len(set(found))
    return wrong + len(numbers)


def characters_unexplained(files: RawFiles) -> int:
    """Characters that were in a raw file and are nowhere."""
    lost = 0
    for name, path, source in files.files(*raw.TABLE_KINDS, "sensor_logs"):
        entries = files.decoding_of.get(name, ())
        if not entries:
            lost += raw.table_characters(name, path, "utf-8", str(source.get("sheet") or ""))
        for entry in entries:
            count = raw.table_characters(name, path, entry["encoding"], entry["sheet"])
            lost += abs(count - entry["characters_in"]) + abs(entry["characters_in"] - entry["characters_out"])
            lost += 0 if raw.encoding_right(name, path, entry["encoding"]) else count
    lost += sum(_document_lost(files, name, path) for name, path, _ in files.files(*raw.DOCUMENT_KINDS))
    return lost + _paragraphs_lost(files)


def _masked(files: RawFiles, name: str) -> tuple[int, Counter[str]]:
    """Characters of personal data that a document's paragraphs hold no more, and those of the placeholders instead."""
    rows = [m for m in files.masked if m["source"] == name and m["place"] == "paragraph"]
    placeholders: Counter[str] = Counter()
    for m in rows:
        words = PLACEHOLDERS[m["kind"]]["zh" if files.spec.get("language") == "zh" else "en"]
        for character, count in visible_characters(words).items():
            placeholders[character] += count * m["items"]
    return sum(m["characters"] for m in rows), placeholders


def _document_lost(files: RawFiles, name: str, path: Path) -> int:
    """Characters of a document that its paragraphs do not hold."""
    encoding = files.encoding(name)
    held: Counter[str] = Counter()
    for paragraph in files.paragraphs_of.get(name, ()):
        held.update(visible_characters(paragraph["text"]))
    readings = raw.document_characters(name, path, encoding)
    if name.lower().endswith(".pdf"):
        held = folded(held)
    removed, placeholders = _masked(files, name)
    held = held - folded(placeholders) if name.lower().endswith(".pdf") else held - placeholders
    lost = min(abs((reading - held).total() - removed) + (held - reading).total() for reading in readings)
    return lost if raw.encoding_right(name, path, encoding) else lost + held.total()


def _paragraphs_lost(files: RawFiles) -> int:
    """Characters of kept paragraphs of manuals that their samples do not hold, of all files in one pass."""
    manuals = {name for name, _, _ in files.files("manuals")}
    if not manuals:
        return 0
    kept: set[tuple[str, str]] = set()
    for batch in files.ledger.batches(["source", "location", "fate", "cut_tokens"]):
        mine = (r for r in batch if r["source"] in manuals and r["fate"] == "kept" and not r["cut_tokens"])
        kept.update((r["source"], r["location"]) for r in mine)
    said: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for batch in files.samples.batches(["source", "location", "prompt", "answer"]):
        for s in batch:
            if (place := (s["source"], s["location"])) in kept:
                said[place].append((s["prompt"], s["answer"]))
    return sum(
        _paragraph_lost(p["text"], said.get((name, p["location"]), ()))
        for name in sorted(manuals)
        for p in files.paragraphs_of.get(name, ())
        if (name, p["location"]) in kept
    )


def _paragraph_lost(text: str, said: Sequence[tuple[str, str]]) -> int:
    """Characters of a paragraph that are in none of its samples; 1 where the only one has them in another order.

    Such a sample does not end with the paragraph, letter by letter: a number was altered in one of them. Where personal
    data was masked, headings above the text may have changed what was found in it.
    """
    lost = (visible_characters(text) - visible_characters("".join(map("".join, said)))).total()
    if lost or len(said) != 1 or personal.placeholders(said[0][1]):
        return lost
    answer, read = ("".join(filter(str.isalnum, part)) for part in (said[0][1], text))
    return int(not answer.endswith(read))
