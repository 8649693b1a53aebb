"""A full disk, told by libraries that write files with code of their own and in words of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specs.errors import StorageError
from specs.files import storage_errors

_WORDS = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|\bos error (28|122|27)\b"
    r"|PytorchStreamWriter failed writing|file write failed|unexpected pos \d+ vs"
)
"""Of the system, of Rust (safetensors: ENOSPC, EDQUOT, EFBIG), of torch, which keeps no number of the system's."""


@contextmanager
def library_storage_errors(path: Path) -> Iterator[None]:
    """`storage_errors` for a block in which torch or safetensors writes: they raise errors that are no `OSError`."""
    try:
        with storage_errors(path):
            yield
    except Exception as error:
        if isinstance(error, StorageError) or not is_full(error):
            raise
        raise StorageError(
            f"no space left while writing {path}", "free some space on this volume, then `gatewright resume`"
        ) from error


def is_full(error: BaseException) -> bool:
    """Whether an error, or one that it came from, says that a volume or a quota is full."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, StorageError) or _WORDS.search(str(seen)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
