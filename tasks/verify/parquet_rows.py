"""Parquet files row by row without holding them, and keys of rows as 64-bit numbers that a million fit in memory of."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import xxhash

from tasks.verify.data_artifacts import read_whole, require_texts

Keys = npt.NDArray[np.uint64]
ROWS_AT_ONCE = 4096


class ParquetRows:
    """The rows of a Parquet file as dictionaries, read anew by every loop and never all in memory.

    With `whole`, a row of an artifact in which a text is missing raises `VerificationFailed`, as every damage does.
    """

    def __init__(self, path: Path, whole: bool = False) -> None:
        self.path, self.whole = path, whole

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.batches():
            yield from batch

    def __len__(self) -> int:
        count: int = pq.read_metadata(self.path).num_rows
        return count

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[list[dict[str, Any]]]:
        """A few thousand rows at a time, all columns or those named that are there."""
        with read_whole(self.path), pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=None if columns is None else list(columns)):
                if self.whole:
                    require_texts(batch, self.path)
                yield batch.to_pylist()

    def where(self, column: str, value: str) -> list[dict[str, Any]]:
        """The rows in which a text column has a value."""
        return [row for batch in self.batches() for row in batch if row[column] == value]


def key_of(text: str) -> int:
    """A 64-bit number for a text; a million texts share one with a probability of 3e-8."""
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def place_of(source: str, location: str) -> int:
    """The key of a unit, by the text that `merged_into` names it with."""
    return key_of(f"{source}|{location}")


def keys_of(numbers: Iterable[int]) -> Keys:
    """Keys as an array, in their order."""
    return np.frombuffer(array("Q", numbers), np.uint64)


def difference(a: Keys, b: Keys) -> int:
    """How many keys only one side has, each as often as it has it more often."""
    values = np.concatenate([a, b])
    if not len(values):
        return 0
    _, place = np.unique(values, return_inverse=True)
    side = np.concatenate([np.ones(len(a), np.int64), np.full(len(b), -1, np.int64)])
    return int(np.abs(np.bincount(place, side)).sum())
