"""A heap after steps of a training: prints how many bytes it grew by, and how many of those it kept afterwards.

Blocks below the threshold of a worker, as tensors of short batches are, alternate with small ones, as their
bookkeeping is; then all are freed. Needs glibc 2.33.
"""

from __future__ import annotations

import ctypes
import sys

BLOCKS, TENSOR_BYTES, SMALL_BYTES = 200, 700_000, 600


WORDS = 10
"""Fields of what `mallinfo2` returns; the first is the size of the heap."""


class Counts(ctypes.Structure):
    """What `mallinfo2` returns."""

    _fields_ = (("words", ctypes.c_size_t * WORDS),)


def main() -> None:
    """The program."""
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    library.mallinfo2.restype = Counts
    tensors, small = (ctypes.c_void_p * BLOCKS)(), (ctypes.c_void_p * BLOCKS)()
    before = library.mallinfo2().words[0]
    for k in range(BLOCKS):
        tensors[k], small[k] = library.malloc(TENSOR_BYTES), library.malloc(SMALL_BYTES)
    highest = library.mallinfo2().words[0]
    for k in reversed(range(BLOCKS)):
        library.free(small[k])
    for k in range(BLOCKS):
        library.free(tensors[k])
    sys.stdout.write(f"{highest - before} {library.mallinfo2().words[0] - before}\n")


if __name__ == "__main__":
    main()
