"""What a goal promises to cover: fault types, parts and codes that it names, with all words for them. Pure.

Only words that a list knows and codes are taken: nothing is guessed from the rest of a sentence, so that a plain
goal asks for nothing and a finding stands on a word that somebody wrote.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path

_CODE = re.compile(r"(?<![A-Za-z0-9])[A-Z]{1,4}[- ]?\d{2,5}(?![A-Za-z0-9])")
"""An alarm code or a machine as people write them: AL-12, E401, SV0401, VMC-850."""

_NORMS = frozenset({"ISO", "DIN", "GB", "GBT", "IEC", "EN", "JIS", "ANSI", "VDE", "CE"})
"""Letters before the number of a standard, which no work order needs to name."""

Terms = dict[str, tuple[str, ...]]
"""The word as the goal has it, and every word that counts as the same."""


@cache
def groups() -> tuple[tuple[str, ...], ...]:
    """Words for one fault or part, in both languages, as `fault_words.txt` lists them."""
    text = Path(__file__).with_name("fault_words.txt").read_text(encoding="utf-8")
    return tuple(tuple(line.split("|")) for line in text.splitlines() if line)


def goal_terms(goal: str) -> Terms:
    """The faults, parts and codes that a goal names, in its order."""
    plain = unicodedata.normalize("NFKC", goal)
    found: list[tuple[int, int, str, tuple[str, ...]]] = []
    for group in groups():
        hits = [match for word in group for match in pattern((word,)).finditer(plain)]
        if hits:
            first = min(hits, key=lambda m: (m.start(), -m.end()))
            found.append((first.start(), -first.end(), first[0], group))
    for match in _CODE.finditer(plain):
        if re.match(r"[A-Z]+", match[0])[0] not in _NORMS:  # type: ignore[index]
            found.append((match.start(), -match.end(), match[0], (match[0],)))
    return {word: group for _, _, word, group in sorted(found)}


def pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """Finds any of the words: Latin ones whole, in singular and plural, codes with or without dash, others anywhere."""
    return _pattern(words)


@cache
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(_one, sorted(words, key=len, reverse=True))), re.IGNORECASE)


def _one(word: str) -> str:
    if not word.isascii():
        return re.escape(word)
    if code := re.fullmatch(r"([A-Za-z]+)[- ]?(\d+)", word):
        return rf"(?<![A-Za-z0-9]){code[1]}[- _]?{code[2]}(?!\d)"
    body = r"[\s-]+".join(map(re.escape, word.split()))
    return rf"(?<![A-Za-z]){body}(?:s|es)?(?![A-Za-z])"
