"""MinHash sketches of shingle sets: bands to find candidates by, and a signature to weigh them. Pure.

128 permutations in 16 bands of 8, and 8 bands more across them, each of one minimum out of every other block: of two
records with Jaccard similarity s, about 1 - (1 - s^8)^24 become a candidate (76 % at 0.7, 99 % at 0.8, above 99.99 %
at 0.9). The bands across cost no permutation more, because two of them share at most one minimum with a block.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.data.shingles import I64, U64, ShingleSets, mixed

PERMUTATIONS, BLOCKS, ACROSS = 128, 16, 8
BANDS = BLOCKS + ACROSS
SEED = 42
_ROWS_AT_ONCE = 4096
_PACK = struct.Struct(f"<{PERMUTATIONS}I").pack
_MARGIN = 0.2
"""Five standard deviations of a similarity of 0.7 that is estimated by 128 permutations."""


@dataclass(frozen=True, slots=True)
class Sketches:
    """`bands[i]`: a key per band of row i; `signature[i]`: the low byte of each of its minima."""

    bands: U64
    signature: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.bands)


def empty_sketches(count: int) -> Sketches:
    """Room for the sketches of `count` rows."""
    return Sketches(np.zeros((count, BANDS), np.uint64), np.zeros((count, PERMUTATIONS), np.uint8))


def sketches_of(sets: ShingleSets) -> Sketches:
    """The sketches of shingle sets."""
    found = empty_sketches(len(sets))
    for at in range(0, len(sets), _ROWS_AT_ONCE):
        rows = np.arange(at, min(at + _ROWS_AT_ONCE, len(sets)))
        minima = _minima(sets.take(rows))
        found.signature[rows] = minima.astype(np.uint8)
        parts = _banded(minima)
        keys = np.broadcast_to(np.arange(1, BANDS + 1, dtype=np.uint64), (len(rows), BANDS))
        for k in range(parts.shape[2]):
            keys = mixed(keys ^ parts[:, :, k])
        found.bands[rows] = keys
    return found


def _banded(minima: U64) -> U64:
    """The minima of each band: consecutive ones of 16 blocks, then every sixteenth one from each of 8 starts."""
    blocks = minima.reshape(len(minima), BLOCKS, PERMUTATIONS // BLOCKS)
    across = minima.reshape(len(minima), PERMUTATIONS // BLOCKS, BLOCKS)[:, :, :ACROSS].transpose(0, 2, 1)
    return np.concatenate([blocks, across], axis=1)


def _minima(sets: ShingleSets) -> U64:
    from rensa import RMinHash

    matrix = RMinHash.digest_matrix_from_flat_token_hashes(
        sets.values, sets.offsets.astype(np.uint64), PERMUTATIONS, SEED
    )
    packed = b"".join([_PACK(*row) for row in matrix.to_rows()])  # twice as fast as an array of Python numbers
    return np.frombuffer(packed, "<u4").astype(np.uint64).reshape(len(sets), PERMUTATIONS)


def promising(sketches: Sketches, a: I64, b: I64, threshold: float) -> npt.NDArray[np.bool_]:
    """Whether rows `a[i]` and `b[i]` may reach the threshold, as far as their signatures tell."""
    found = np.zeros(len(a), np.bool_)
    for at in range(0, len(a), 65536):
        part = slice(at, at + 65536)
        equal = (sketches.signature[a[part]] == sketches.signature[b[part]]).sum(1, dtype=np.int32)
        found[part] = equal >= (threshold - _MARGIN) * PERMUTATIONS
    return found
