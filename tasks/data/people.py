"""People that a row names in a column of its own (Technician, 维修人): masked wherever they recur in its texts. Pure.

The column is no part of a sample; its cell tells that a word of the row is a name, without a title beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from tasks.data import name_words as words
from tasks.data.synonyms import comparable, people_headers

_BETWEEN = re.compile(r"\s*(?:[,，;；、/|&+\n]|\band\b|和|与)\s*")
_LATIN = re.compile(r"[^\W\d_](?:[^\W\d_]|['’\-])*\.?(?:\s+[^\W\d_](?:[^\W\d_]|['’\-])*\.?){0,3}")
_HAN = re.compile(r"[一-鿿]{2,8}")
_TITLE = re.compile(rf"(?:{'|'.join(words.TITLES)}|[工总])$")


def people_columns(header: Sequence[str]) -> list[int]:
    """The columns of a table whose cells name people, by their headers."""
    known = people_headers()
    return [at for at, name in enumerate(header) if comparable(name.replace(" / ", ".").rsplit(".", 1)[-1]) in known]


@lru_cache(maxsize=65536)
def people_in(cell: str) -> tuple[str, ...]:
    """The names in a cell; words that are no name (`Night shift`, 白班, a number) are left out."""
    return tuple(dict.fromkeys(name for piece in _BETWEEN.split(cell.strip()) if (name := _name(piece.strip()))))


def _name(piece: str) -> str:
    if _HAN.fullmatch(piece):
        bare = _TITLE.sub("", piece)
        sure = bare[:1] in words.WIDE_SURNAMES or bare[:2] in words.DOUBLE_SURNAMES
        return bare if sure and 2 <= len(bare) <= 4 and not bare.startswith(tuple(words.NO_NAMES)) else ""
    if not piece.isascii() and any("㐀" <= c <= "鿿" for c in piece):
        return ""
    parts = piece.split()
    if not _LATIN.fullmatch(piece) or not all(part[:1].isupper() or part.islower() for part in parts):
        return ""
    named = [part for part in parts if part.strip(".").casefold() not in words.NO_ENGLISH_NAMES]
    return piece if len(named) == len(parts) and any(len(part) > 2 for part in parts) else ""


def spans_of(people: Sequence[str], text: str) -> Iterator[tuple[int, int]]:
    """Where a text names one of these people: whole names in any case, single words of a Latin name with a capital.

    In small letters a word of a name may be another word (`mark`, `frank`).
    """
    for name in people:
        if not name.isascii() and _HAN.fullmatch(name):
            yield from ((m.start(), m.end()) for m in re.finditer(re.escape(name), text))
            continue
        parts = [part.strip(".") for part in name.split()]
        for pattern in _patterns(tuple(parts)):
            yield from ((m.start(), m.end()) for m in pattern.finditer(text))


@lru_cache(maxsize=65536)
def _patterns(parts: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    edge, end = r"(?<![A-Za-zÀ-ÿ0-9_\-./])", r"(?![A-Za-zÀ-ÿ0-9_]|[\-/.][A-Za-z0-9])"
    found = []
    for order in (parts, parts[::-1]) if len(parts) > 1 else ():
        whole = r"[.,]?\s+".join(map(re.escape, order))
        found.append(re.compile(f"{edge}{whole}{end}", re.IGNORECASE))
    for part in parts:
        if len(part) > 2 and part.casefold() not in words.NO_ENGLISH_NAMES:
            forms = {part[:1].upper() + part[1:].lower(), part.upper(), part if not part.islower() else part.upper()}
            found.append(re.compile(rf"{edge}(?:{'|'.join(map(re.escape, sorted(forms)))}){end}"))
    return tuple(found)
