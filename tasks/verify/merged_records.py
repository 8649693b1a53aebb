"""Merged records of instruction files against the records that stay for them: to the letter, and answer by answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tasks.verify.data_texts import fold, grams_of, similarity
from tasks.verify.raw_instructions import Record


@dataclass(frozen=True, slots=True)
class Told:
    """What a record says, turn by turn and folded, and the answers of it that are learnt."""

    letters: tuple[str, ...]
    answers: tuple[str, ...]
    system: str = ""

    @classmethod
    def of(cls, record: Record, last_only: bool) -> Told:
        """Of a record as it was read."""
        turns = [text for pair in record.pairs for text in pair]
        last = len(record.pairs) - 1
        learnt = [n == last or not (last_only or n in record.unlearnt) for n in range(last + 1)]
        return cls(
            (record.system and fold(record.system), *(fold(text) or text for text in turns)),
            tuple(fold(answer) or answer for (_, answer), taught in zip(record.pairs, learnt, strict=True) if taught),
            record.system,
        )


def merge_faults(gone: Told, stays: Told, reason: str, least: float, by_system: bool = True) -> Iterator[str]:
    """What is wrong with a merge, in words. `least` is how alike the answer that stays must be to the one that goes.

    `by_system`: records under another system text stay apart; in older runs only those equal to the letter did.
    """
    same = gone.letters == stays.letters and len(gone.answers) == len(stays.answers)
    if reason == "exact_duplicate" and not same:
        yield "called the same to the letter, and its turns or its system text are not"
    elif reason == "near_duplicate" and same:
        yield "called nearly the same, and it is the same to the letter"
    elif by_system and reason == "near_duplicate" and not set(_words(gone.system) ^ _words(stays.system)) <= _IDLE:
        yield "its system text says something else than that of the record it went into"
    known = [grams_of(answer) for answer in stays.answers]
    for answer in dict.fromkeys(gone.answers):
        mine = grams_of(answer)
        if answer not in stays.answers and not any(similarity(mine, other) >= least for other in known):
            yield f"its answer {answer[:40]!r} is learnt in no sample"


_NOT = {
    re.compile(rf"\b{pattern}\b", re.IGNORECASE): plain
    for pattern, plain in {
        r"can(?:['’]t|not)": "can not",
        r"won['’]t": "will not",
        r"shan['’]t": "shall not",
        r"(\w+)n['’]t": r"\1 not",
    }.items()
}
_CHINESE = re.compile(r"([\u3400-\u9fff])")
_IDLE_WORDS = "a an the please kindly re are ve have ll will m am 请 一 个 名 位 的 您 你"
_IDLE = frozenset(_IDLE_WORDS.split())
"""Words and characters of a system text that may be in one of two and not in the other."""


def _words(system: str) -> set[str]:
    """The words of a system text, Chinese ones by character, and how often each of them stands there."""
    plain = system
    for pattern, words in _NOT.items():
        plain = pattern.sub(words, plain)
    count = Counter(_CHINESE.sub(r" \1 ", fold(plain)).split()) if fold(plain) else Counter([system.strip()])
    return {word if word in _IDLE else f"{word} {number}" for word, number in count.items() if word}
