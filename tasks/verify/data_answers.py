"""What samples say at each place, and what the raw tables of codes say of each code: looked up, not held row by row."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.turns import COLUMN
from tasks.verify import data_raw as raw
from tasks.verify import personal
from tasks.verify.data_artifacts import read_whole
from tasks.verify.data_rows import RawFiles
from tasks.verify.data_words import code_key
from tasks.verify.parquet_rows import keys_of, place_of

COLUMNS = ("prompt", "answer", "device_model", "fault_type")
Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Said:
    """All that is asked and answered at a place, one sample after the other: `count` samples of one machine."""

    prompt: str
    answer: str
    device_model: str
    fault_type: str
    count: int


class Answers:
    """What was asked and answered at each place, held as Arrow columns."""

    def __init__(self, files: RawFiles) -> None:
        short = ["device_model", "fault_type"]
        names = [*COLUMNS, *([COLUMN] if files.whole_conversations else [])]
        with read_whole(files.samples.path):
            held = pq.read_table(files.samples.path, columns=names, read_dictionary=short)
        self._columns: list[pa.ChunkedArray] = [held[name] for name in COLUMNS]
        self._earlier: pa.ChunkedArray | None = held[COLUMN] if files.whole_conversations else None
        places = keys_of(
            place_of(s["source"], s["location"])
            for batch in files.samples.batches(["source", "location"])
            for s in batch
        )
        self._order = np.argsort(places, kind="stable")
        self._places = places[self._order]

    def rows(self, place: int) -> list[dict[str, Any]]:
        """The samples there, one after the other, with what is asked and answered in each."""
        names = (*COLUMNS, *([COLUMN] if self._earlier is not None else []))
        columns = [*self._columns, *([self._earlier] if self._earlier is not None else [])]
        return [
            {name: column[i].as_py() for name, column in zip(names, columns, strict=True)} for i in self._numbers(place)
        ]

    def _numbers(self, place: int) -> list[int]:
        low = np.searchsorted(self._places, np.uint64(place), side="left")
        high = np.searchsorted(self._places, np.uint64(place), side="right")
        numbers: list[int] = self._order[low:high].tolist()
        return numbers

    def at(self, place: int) -> Said | None:
        """What is said there; None where there is no sample."""
        found = [[str(column[i].as_py()) for column in self._columns] for i in self._numbers(place)]
        if not found:
            return None
        prompts, answers, machines, codes = zip(*found, strict=True)
        return Said("".join(prompts), "".join(answers), machines[0], codes[0], len(found))


class Codes:
    """Rows of the raw tables of fault codes by code, with the machine that their source is about."""

    def __init__(self, files: RawFiles) -> None:
        self._rows: defaultdict[str, list[Row]] = defaultdict(list)
        for name, path, source in files.files("fault_codes"):
            machine = str(source.get("device_model") or "")
            for _, row in raw.iter_table_rows(name, path, source, files.encoding(name)):
                self._rows[code_key(row.get("fault_type", ""))].append({"source_model": machine, **row})

    def rows(self, code: str) -> Sequence[Row]:
        """The rows of a code, however it is written."""
        return self._rows.get(code_key(code), ())

    def tell(self, code: str, **told: str) -> bool:
        """Whether one row of a code says in its fields what is `told`; placeholders may stand for some of it."""
        return any(all(says(row.get(name, ""), text) for name, text in told.items()) for row in self.rows(code))


def says(raw_cell: str, text: str) -> bool:
    """Whether a text has the letters and digits of a cell; between placeholders, parts of them in their order."""
    cell = letters(raw_cell)
    pieces = [letters(piece) for piece in personal.pieces(text)]
    if len(pieces) == 1:
        return pieces[0] == cell or (not pieces[0] and cell.casefold() in _NOTHING)
    at = 0
    for piece in pieces:
        at = cell.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


_NOTHING = frozenset({"na", "none", "null", "nan", "nil", "无", "暂无", "空"})


def letters(text: str) -> str:
    """Letters and digits only, in NFC."""
    return _NO_LETTER.sub("", raw.composed(text))


_NO_LETTER = re.compile(r"[\W_]+")


def table_rows_of(files: RawFiles) -> Iterator[tuple[str, str, list[str], Row, Mapping[str, object]]]:
    """(file, location, all cells, mapped fields, source of the spec) of every row of every raw table."""
    for name, path, source in files.files(*raw.TABLE_KINDS):
        for location, cells, at in raw.iter_whole_rows(name, path, source, files.encoding(name)):
            yield name, location, cells, raw.fields_of(cells, at), source
