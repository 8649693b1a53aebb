"""The raw tables in one pass, row by row: which units they hold, which code variants were lost, which answers cut."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.prompts import PromptTemplate
from tasks.verify import data_raw as raw
from tasks.verify import data_texts as texts
from tasks.verify import personal
from tasks.verify.data_rows import RawFiles
from tasks.verify.data_words import says_otherwise
from tasks.verify.parquet_rows import Keys, key_of, keys_of, place_of

Row = Mapping[str, str]


@dataclass(slots=True)
class Tables:
    """What one pass over the raw tables counts. `units` are the keys of their rows."""

    units: Keys = field(default_factory=lambda: np.zeros(0, np.uint64))
    variants_lost: int = 0
    answer_tokens_cut: int = 0
    saying_otherwise: int = 0


class _Answers:
    """What was asked and answered at each place, held as Arrow columns."""

    def __init__(self, files: RawFiles) -> None:
        held = pq.read_table(files.samples.path, columns=["prompt", "answer"])
        self._asked: pa.ChunkedArray = held["prompt"]
        self._texts: pa.ChunkedArray = held["answer"]
        places = keys_of(
            place_of(s["source"], s["location"])
            for batch in files.samples.batches(["source", "location"])
            for s in batch
        )
        self._order = np.argsort(places, kind="stable")
        self._places = places[self._order]

    def at(self, place: int) -> tuple[str, str]:
        """All that is asked and answered there, one sample after the other; empty where there is no sample."""
        low = np.searchsorted(self._places, np.uint64(place), side="left")
        high = np.searchsorted(self._places, np.uint64(place), side="right")
        found = [int(i) for i in self._order[low:high]]
        return "".join(self._asked[i].as_py() for i in found), "".join(self._texts[i].as_py() for i in found)


def look_at_tables(files: RawFiles, template: PromptTemplate) -> Tables:
    """Read every raw table once. The texts of merged rows and of what they went into are held for comparison."""
    found = Tables()
    merged = [
        (place_of(row["source"], row["location"]), key_of(str(row["merged_into"])))
        for batch in files.ledger.batches(["source", "location", "fate", "merged_into"])
        for row in batch
        if row["fate"] == "merged"
    ]
    needed = {key for pair in merged for key in pair}
    held = {
        key: {"text": p["text"]} for p in files.paragraphs if (key := place_of(p["source"], p["location"])) in needed
    }
    answers, units = _Answers(files), array("Q")
    masked, cut = _masked(files), _cut(files)
    for (source, location), row, machine in _rows(files):
        place = place_of(source, location)
        units.append(place)
        if place in needed:
            held[place] = dict(row)
        prompt, answer = answers.at(place)
        if not answer:
            continue
        said = letters(row.get("repair") or row.get("remedy") or "")
        if said and not ends_alike(answer, said):
            found.answer_tokens_cut += max(1, len(template.encode("", said).input_ids) - 1)
        found.saying_otherwise += says_otherwise(row, (prompt, answer), masked[place], place in cut, machine)
    found.units = keys_of(units)
    for mine, kept in merged:
        a, b = held.get(mine), held.get(kept)
        found.variants_lost += a is not None and (b is None or texts.differs_in_code(a, b))
    return found


def _masked(files: RawFiles) -> Counter[int]:
    """Characters of personal data masked in the samples of each place."""
    found: Counter[int] = Counter()
    for m in files.masked:
        if m["place"] == "sample":
            found[place_of(m["source"], m["location"])] += m["characters"]
    return found


def _cut(files: RawFiles) -> set[int]:
    """The places whose prompts were shortened."""
    batches = files.ledger.batches(["source", "location", "cut_tokens"])
    return {place_of(row["source"], row["location"]) for batch in batches for row in batch if row["cut_tokens"]}


def _rows(files: RawFiles) -> Iterator[tuple[tuple[str, str], Row, str]]:
    """(place, fields, the machine that the source is about) of every row of every raw table."""
    for name, path, source in files.files(*raw.TABLE_KINDS):
        machine = str(source.get("device_model") or "")
        for place, row in raw.iter_table_rows(name, path, source, files.encoding(name)):
            yield place, row, machine


def ends_alike(answer: str, said: str) -> bool:
    """Whether an answer ends as the raw cell does, or with what stood before masked personal data at its end."""
    piece, masked_behind = personal.end_of(answer)
    tail = letters(piece)[-4:]
    if masked_behind:
        return tail in said
    return said.endswith(tail) if len(tail) < 4 and piece != answer else tail.endswith(said[-4:])


def letters(text: str) -> str:
    """Letters and digits only."""
    return "".join(c for c in text if c.isalnum())
