"""Merged records of instruction files against the records that stay for them: to the letter, and answer by answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tasks.verify.data_texts import fold, grams_of, similarity
from tasks.verify.raw_instructions import Record


@dataclass(frozen=True, slots=True)
class Told:
    """What a record says, turn by turn and folded, and the answers of it that are learnt."""

    letters: tuple[str, ...]
    answers: tuple[str, ...]

    @classmethod
    def of(cls, record: Record, last_only: bool) -> Told:
        """Of a record as it was read."""
        turns = [text for pair in record.pairs for text in pair]
        unlearnt: frozenset[int] = getattr(record, "unlearnt", frozenset())
        last = len(record.pairs) - 1
        learnt = [n == last or not (last_only or n in unlearnt) for n in range(last + 1)]
        return cls(
            (record.system and fold(record.system), *(fold(text) or text for text in turns)),
            tuple(fold(answer) or answer for (_, answer), taught in zip(record.pairs, learnt, strict=True) if taught),
        )


def merge_faults(gone: Told, stays: Told, reason: str, least: float) -> Iterator[str]:
    """What is wrong with a merge, in words. `least` is how alike the answer that stays must be to the one that goes."""
    same = gone.letters == stays.letters and len(gone.answers) == len(stays.answers)
    if reason == "exact_duplicate" and not same:
        yield "called the same to the letter, and its turns or its system text are not"
    elif reason == "near_duplicate" and same:
        yield "called nearly the same, and it is the same to the letter"
    known = [grams_of(answer) for answer in stays.answers]
    for answer in dict.fromkeys(gone.answers):
        mine = grams_of(answer)
        if answer not in stays.answers and not any(similarity(mine, other) >= least for other in known):
            yield f"its answer {answer[:40]!r} is learnt in no sample"
