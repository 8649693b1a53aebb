"""What people call the columns of their tables, in Chinese and English, and the mapping that follows from it. Pure."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

TableKind = Literal["work_orders", "fault_codes"]

NEEDED: Mapping[TableKind, tuple[str, ...]] = {
    "work_orders": ("phenomenon", "repair"),
    "fault_codes": ("fault_type", "meaning"),
}
_LOOKS_ALIKE = 0.86
_LANGUAGE_KEY = {"zh": ("zh", "cn", "chinese", "中文", "zh_cn", "zhcn"), "en": ("en", "english", "英文", "en_us")}


@cache
def synonyms(kind: TableKind) -> Mapping[str, tuple[str, ...]]:
    """Field to its names in comparable form, the most telling first, as `column_names.txt` lists them."""
    return _listed(kind)


def _listed(section: str) -> dict[str, tuple[str, ...]]:
    """The names of a section of `column_names.txt`, by field."""
    text = Path(__file__).with_name("column_names.txt").read_text(encoding="utf-8")
    lines = text.partition(f"[{section}]\n")[2].partition("\n[")[0].splitlines()
    fields = (line.partition(": ")[::2] for line in lines)
    return {field: tuple(dict.fromkeys(map(comparable, names.split("|")))) for field, names in fields}


@cache
def people_headers() -> frozenset[str]:
    """Comparable names of columns that say who did something."""
    return frozenset(_listed("people")["name"])


@cache
def fields_of_name(kind: TableKind) -> Mapping[str, frozenset[str]]:
    """Comparable name to the fields that it may stand for."""
    found: dict[str, set[str]] = {}
    for field, names in synonyms(kind).items():
        for name in names:
            found.setdefault(name, set()).add(field)
    return {name: frozenset(fields) for name, fields in found.items()}


def comparable(name: str) -> str:
    """A header for comparison: camel case divided, units in brackets and punctuation dropped, case folded."""
    text = unicodedata.normalize("NFKC", name)
    text = re.sub(r"[\[(（【].*?[\])）】]", " ", text) or text
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return " ".join(re.sub(r"[\W_]+", " ", text.casefold()).split())


def propose(header: Sequence[str], kind: TableKind, language: str = "en") -> dict[str, str]:
    """Our fields to columns of `header`, by synonyms; each column once, the surest first; fields may be missing."""
    scored = []
    for rank, (field, names) in enumerate(synonyms(kind).items()):
        for at, column in enumerate(header):
            score = _score(column, names, language)
            if score > 0:
                scored.append((-score, field not in NEEDED[kind], rank, at, field, column))
    chosen: dict[str, str] = {}
    taken: set[int] = set()
    for _, _, _, at, field, column in sorted(scored):
        if field not in chosen and at not in taken:
            chosen[field] = column
            taken.add(at)
    return {field: chosen[field] for field in synonyms(kind) if field in chosen}


def _score(column: str, names: Sequence[str], language: str) -> float:
    """How surely a column is called by one of `names`: 1 for the first name itself, less for later and partial ones."""
    path = [part for part in re.split(r"\.| / ", column) if part.strip()]
    if not path:
        return 0.0
    last = comparable(path[-1])
    if not last:
        return 0.0
    other = next(words for key, words in _LANGUAGE_KEY.items() if key != ("zh" if language == "zh" else "en"))
    foreign = any(part.strip().casefold() in other for part in path[:-1])
    best = 0.0
    for place, name in enumerate(names):
        late = 0.2 * place / len(names)
        if last == name:
            best = max(best, 1.0 - late)
        elif _within(name, last):
            best = max(best, 0.7 - late)
        elif len(name) > 4 and difflib.SequenceMatcher(None, last, name).ratio() >= _LOOKS_ALIKE:
            best = max(best, 0.6 - late)
    return max(0.0, best - 0.3 * foreign)


def _within(name: str, header: str) -> bool:
    """Whether all words of a name stand in a longer header, or a Chinese name inside it."""
    if any("\u3400" <= c <= "\u9fff" for c in name):
        return len(name) > 1 and name in header
    words, header_words = name.split(), header.split()
    if len(name) < 3 or not set(words) < set(header_words):
        return False
    first, last = header_words[0], header_words[-1]
    return len(words) > 1 or name == last or (name == first and last in _QUALIFIERS)


_QUALIFIERS = frozenset(
    (
        "text",
        "description",
        "notes",
        "note",
        "comment",
        "comments",
        "details",
        "name",
        "no",
        "number",
        "id",
        "code",
        "type",
    )
)
"""Words after which a header still means its first word: `repair notes` is a repair, `machine failure` no machine."""
