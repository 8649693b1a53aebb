"""Shards: what has been read, rendered, tokenised and fingerprinted, on disk, so that an interruption costs one shard.

A shard is complete when its description `shard-N.json` is there; it is written last. A shard that is found complete
for the same rows is not made again. The folder is named after everything that decides what is in it.
"""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from specs.base import Language
from specs.canonical import digest
from specs.files import write_bytes, write_json
from specs.parameters import DataParameters
from tasks.data.extraction import Asking
from tasks.data.lengths import measure_many, unusable
from tasks.data.merging import critical, hashes
from tasks.data.objectives import is_plain_text
from tasks.data.privacy import Masker
from tasks.data.records import Draft, Fate, Unit
from tasks.data.shingles import I64, ShingleSets, joined, shingle_sets
from tasks.data.similarity import normalise
from tasks.data.sketches import Sketches, empty_sketches, sketches_of
from tasks.data.teaching import letters, pair_texts, pairs_said
from tasks.prompts import PromptTemplate

VERSION = 8
"""Of what a shard holds and how it is made; another one never uses the shards of this one."""

_TYPES: dict[str, pa.DataType] = {
    "str": pa.string(),
    "int": pa.int32(),
    "tuple[str, ...]": pa.list_(pa.string()),
    "tuple[int, ...]": pa.list_(pa.int32()),
}
_DRAFT = [f for f in fields(Draft) if f.name not in ("unit", "kind")]
_UNIT = ("source", "location", "original")
ROWS = pa.schema(
    [
        *((name, pa.string()) for name in (*_UNIT, "kind")),
        *((f.name, _TYPES[str(f.type)]) for f in _DRAFT),
        *((name, pa.string()) for name in ("rendered_prompt", "answer", "content", "asked", "unusable")),
        ("taught", pa.list_(pa.string())),
        ("pairs", pa.list_(pa.uint64())),
        *((name, pa.int32()) for name in ("n_tokens", "learnt", "filled", "plain_text")),
        *((name, pa.uint64()) for name in ("exact", "guard", "teaches")),
    ]
)
FATES = pa.schema([(name, pa.string()) for name in (*_UNIT, "fate", "reason", "merged_into")])
NARROW = ("source", "location", "kind", "device_model", "fault_type", "group", "unusable")
"""Text columns that are short enough to be held for all rows at once."""
NUMBERS = ("part", "cut_tokens", "left_out", "n_tokens", "learnt", "filled", "plain_text", "exact", "guard", "teaches")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides what becomes of a draft in a shard."""

    parameters: DataParameters
    language: Language
    template: PromptTemplate
    allowed: tuple[str, ...] = ()
    masks: bool = True
    asks: bool = False


class Shards:
    """The shards of one preparation, in the order of reading."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder, self.recipe = folder, recipe
        self.masker = Masker(recipe.language, recipe.allowed)
        self.asked: Counter[str] = Counter()
        self.counts: list[int] = []
        self.made = 0
        self.reused = 0
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def starts(self) -> I64:
        """The number of the first row of each shard, and the number of all rows."""
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)

    def add(self, drafts: Sequence[Draft], fates: Sequence[Fate]) -> None:
        """The next shard: made, or found complete for these very rows."""
        number = len(self.counts) + 1
        held = digest([[d.unit.source, d.unit.location, d.part] for d in drafts] + [[f.unit.location] for f in fates])
        path = self._path(number, "json")
        if not path.is_file() or json.loads(path.read_bytes()).get("held") != held:
            self._make(number, drafts, fates, held)
            self.made += 1
        else:
            self.reused += 1
        self._count(json.loads(path.read_bytes()))

    def _make(self, number: int, drafts: Sequence[Draft], fates: Sequence[Fate], held: str) -> None:
        path = self._path(number, "json")
        path.unlink(missing_ok=True)
        masker = Masker(self.recipe.language, self.recipe.allowed)
        if self.recipe.masks:
            drafts = [masker.draft(draft) for draft in drafts]
        asking = Asking.current() if self.recipe.asks else None
        if asking:
            drafts = [asking.draft(draft) for draft in drafts]
        self._write(number, _table(drafts, self.recipe), _fates(fates))
        write_json(
            path,
            {
                "held": held,
                "rows": len(drafts),
                "masked": masker.rows(),
                "asked": dict(asking.counts) if asking else {},
            },
        )

    def _write(self, number: int, rows: pa.Table, fates: pa.Table) -> None:
        for kind, table in (("rows", rows), ("fates", fates)):
            buffer = io.BytesIO()
            pq.write_table(table, buffer, compression="zstd", compression_level=1)
            write_bytes(self._path(number, f"{kind}.parquet"), buffer.getvalue())

    def _count(self, described: Mapping[str, Any]) -> None:
        self.counts.append(int(described["rows"]))
        for row in described["masked"]:
            key = (row["source"], row["location"], row["place"], row["kind"])
            self.masker.items[key] += row["items"]
            self.masker.characters[key] += row["characters"]
        self.asked.update(described.get("asked", {}))

    def _path(self, number: int, kind: str) -> Path:
        return self.folder / f"shard-{number:05d}.{kind}"

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, pl.DataFrame]]:
        """(number of the first row, those columns) of every shard."""
        for number, start in enumerate(self.starts[:-1].tolist(), start=1):
            yield start, _frame(self._path(number, "rows.parquet"), columns)

    def narrow(self) -> pl.DataFrame:
        """The short columns of all rows."""
        frames = [frame for _, frame in self.rows([*NARROW, *NUMBERS])]
        return pl.concat(frames) if frames else _frame_of(_table([], self.recipe)).select([*NARROW, *NUMBERS])

    def fates(self) -> Iterator[pl.DataFrame]:
        """The fates that reading gave, shard by shard."""
        for number in range(1, len(self.counts) + 1):
            yield _frame(self._path(number, "fates.parquet"), FATES.names)

    def sketches(self, column: str, rows: I64) -> Sketches:
        """The sketches of a column of normalised texts of some rows, ascending."""
        found = empty_sketches(len(rows))
        at = 0
        for frame in self.select([column], rows):
            part = sketches_of(shingle_sets(frame[column].to_list()))
            found.bands[at : at + len(part)], found.signature[at : at + len(part)] = part.bands, part.signature
            at += len(part)
        return found

    def sets_of(self, column: str, rows: I64) -> ShingleSets:
        """The shingle sets of a column of normalised texts of some rows, ascending."""
        return joined(shingle_sets(frame[column].to_list()) for frame in self.select([column], rows))

    def select(self, columns: Sequence[str], rows: I64) -> Iterator[pl.DataFrame]:
        """Those columns of some rows, ascending, a frame per shard that has any."""
        bounds = np.searchsorted(rows, self.starts)
        for number, (low, high) in enumerate(pairwise(bounds), start=1):
            if low < high:
                chosen = rows[low:high] - self.starts[number - 1]
                yield _frame(self._path(number, "rows.parquet"), columns)[chosen]

    def drafts(self, rows: I64) -> list[Draft]:
        """Some rows as drafts again, ascending."""
        names = [*_UNIT, "kind", *(f.name for f in _DRAFT)]
        return [_draft(row) for frame in self.select(names, rows) for row in frame.iter_rows(named=True)]

    def remove(self) -> None:
        """The shards have served."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _frame(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    return _frame_of(pq.read_table(path, columns=list(columns)))


def _frame_of(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _table(drafts: Sequence[Draft], recipe: Recipe) -> pa.Table:
    """Drafts rendered, tokenised and fingerprinted."""
    measured = measure_many(drafts, recipe.language, recipe.template)
    content = [normalise(draft.content()) for draft in drafts]
    asked = [normalise("\n".join((*m.draft.earlier, m.prompt, m.answer))) for m in measured]
    guards = [
        critical(text, d.kind, d.device_model, d.fault_type, d.system) for text, d in zip(content, drafts, strict=True)
    ]
    pairs = [pairs_said(m.draft.turns(), m.prompt, m.answer) for m in measured]
    taught = [sorted({answer for _, answer in p}) if d.spoken() else [] for d, p in zip(drafts, pairs, strict=True)]
    exact = [letters(d.turns(), d.prompt, d.plain) if d.spoken() else c for d, c in zip(drafts, content, strict=True)]
    columns: dict[str, Any] = {
        **{name: [getattr(d.unit, name) for d in drafts] for name in _UNIT},
        "kind": [d.kind for d in drafts],
        **{f.name: [getattr(d, f.name) for d in drafts] for f in _DRAFT},
        "rendered_prompt": [m.prompt for m in measured],
        "answer": [m.answer for m in measured],
        "content": content,
        "asked": asked,
        "unusable": [unusable(m, recipe.parameters) for m in measured],
        "n_tokens": [m.n_tokens for m in measured],
        "learnt": [m.learnt for m in measured],
        "filled": [filled(d) for d in drafts],
        "plain_text": [int(is_plain_text({"prompt": m.prompt})) for m in measured],
        "taught": taught,
        "pairs": [hashes(pair_texts(p)).tolist() for p in pairs],
        "exact": hashes(exact),
        "teaches": hashes(["\x1f".join(answers) for answers in taught]),
        "guard": hashes(["\x1f".join(sorted(guard)) for guard in guards]),
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in ROWS], schema=ROWS)


def filled(draft: Draft) -> int:
    """Fields that a record fills, answers that a conversation teaches: of two that say the same, the fuller stays."""
    if draft.spoken():
        return len(pairs_said(draft.turns(), draft.prompt, draft.plain))
    return sum(map(bool, (draft.device_model, draft.fault_type, draft.steps, draft.phenomenon, draft.repair)))


def _fates(fates: Sequence[Fate]) -> pa.Table:
    columns = {
        **{name: [getattr(f.unit, name) for f in fates] for name in _UNIT},
        **{name: [getattr(f, name) for f in fates] for name in ("fate", "reason", "merged_into")},
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in FATES], schema=FATES)


def _draft(row: Mapping[str, Any]) -> Draft:
    values: dict[str, Any] = {
        f.name: tuple(row[f.name]) if str(f.type).startswith("tuple") else row[f.name] for f in _DRAFT
    }
    return Draft(Unit(*(row[name] for name in _UNIT)), row["kind"], **values)
