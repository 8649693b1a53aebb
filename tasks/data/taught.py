"""Which samples an earlier training has seen, or one like them: they are no test of a training that goes on from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from tasks.data.leakage import NearIndex
from tasks.data.merging import SPLIT_THRESHOLD, Flags, hashes
from tasks.data.shingles import U64, shingle_sets
from tasks.data.similarity import normalise
from tasks.data.teaching import Pairs, pair_texts, pairs_said
from tasks.turns import columns_of, spoken, turns_of

if TYPE_CHECKING:
    from tasks.data.preparing import Samples

ROWS_AT_ONCE = 16_384
_FIELDS = ("device_model", "fault_type", "phenomenon", "steps", "repair")


def taught(samples: Samples, pairs: Pairs, learnt: Sequence[Path]) -> Flags:
    """True for samples near a training sample of one of the files, in what they say or as question and answer, and for
    those of which something telling, or everything, was taught by them word for word (`pairs` are all that they teach).
    """
    flags: Flags = np.zeros(len(samples), np.bool_)
    known: Flags = np.zeros(len(pairs.key), np.bool_)
    views = {"content": _content, "asked": _asked}
    for view, text_of in views.items() if learnt and len(samples) else ():
        index = NearIndex(samples.sets_of(view, np.arange(len(samples))), SPLIT_THRESHOLD)
        for path in learnt:
            file = pq.ParquetFile(path)
            columns = columns_of(["split", "kind", "prompt", "answer", *_FIELDS], file.schema_arrow.names)
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
                rows = [row for row in batch.to_pylist() if row["split"] == "train"]
                found, _ = index.near(shingle_sets([normalise(text_of(row)) for row in rows]))
                flags[found] = True
                if view == "asked":
                    known |= np.isin(pairs.key, _keys(rows))
    return flags | pairs.given_away(known)


def _keys(rows: Sequence[Mapping[str, Any]]) -> U64:
    """What rows teach, as it is hashed in the shards."""
    return hashes([text for r in rows for text in pair_texts(pairs_said(turns_of(r), r["prompt"], r["answer"]))])


def _asked(row: Mapping[str, Any]) -> str:
    return "\n".join(filter(None, (spoken(turns_of(row)), row["prompt"], row["answer"])))


def _content(row: Mapping[str, Any]) -> str:
    """What `Draft.content` says of the sample."""
    if not row["prompt"]:
        return str(row["answer"])
    if row["kind"] == "instruction":
        return _asked(row)
    return "\n".join(str(row[name]) for name in _FIELDS if row[name])
