"""Which answer is put to which question. Pure and deterministic.

An adapter that only learnt how answers look lowers the loss on any answer; one that learnt which answer belongs to
which question lowers it on the sample's own answer more than on another sample's. The other answer comes from a
permutation wherever one exists, so that own and mispaired losses are means over the same answers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """What the pairing needs of a sample that has a prompt."""

    sample_id: str
    fault_type: str
    answer: str


def mispair(questions: Sequence[Question], seed: int) -> dict[str, str | None]:
    """sample_id to the sample whose answer it is given: another fault type and another text; None where there is none.

    Two samples without a fault type may be paired when their answers differ. The result does not depend on the
    order of `questions`.
    """
    order = _grouped(questions, seed)
    count = len(order)
    largest = max((sum(q.fault_type == kind for q in order) for kind in {q.fault_type for q in order}), default=0)
    partner = [(index + largest) % count for index in range(count)]
    for index in range(count):
        if not _fits(order[index], order[partner[index]]):
            _repair(order, partner, index)
    result: dict[str, str | None] = {}
    for index, question in enumerate(order):
        other = order[partner[index]]
        result[question.sample_id] = other.sample_id if _fits(question, other) else None
    return dict(sorted(result.items()))


def _grouped(questions: Sequence[Question], seed: int) -> list[Question]:
    """Shuffled by seed, then fault types together, the largest first: a shift by its size leaves every group."""
    shuffled = sorted(questions, key=lambda q: q.sample_id)
    random.Random(seed).shuffle(shuffled)
    sizes: dict[str, int] = {}
    for question in shuffled:
        sizes[question.fault_type] = sizes.get(question.fault_type, 0) + 1
    return sorted(shuffled, key=lambda q: (-sizes[q.fault_type], q.fault_type))


def _fits(question: Question, other: Question) -> bool:
    if question.sample_id == other.sample_id or question.answer == other.answer:
        return False
    return question.fault_type != other.fault_type or question.fault_type == ""


def _repair(order: Sequence[Question], partner: list[int], index: int) -> None:
    """Exchange partners with a sample that stays well paired; else use the next fitting answer a second time."""
    count = len(order)
    for step in range(1, count):
        other = (index + step) % count
        if _fits(order[index], order[partner[other]]) and _fits(order[other], order[partner[index]]):
            partner[index], partner[other] = partner[other], partner[index]
            return
    for step in range(1, count):
        candidate = (partner[index] + step) % count
        if _fits(order[index], order[candidate]):
            partner[index] = candidate
            return
