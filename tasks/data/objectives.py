"""Two objectives of one training: plain text, and questions with their answers; which samples an epoch takes. Pure.

A sample without a prompt is plain text: a paragraph of a manual, a note. It is trained on as a whole, as in
pre-training. With a mix every epoch takes all questions and so much plain text that it is the asked share of the
samples; plain text that does not fit into an epoch has its turn in the next one.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from specs.errors import InputError
from specs.parameters import TrainingConfiguration

Sized = tuple[str, int]
"""A sample id and its tokens."""


def is_plain_text(row: Mapping[str, Any]) -> bool:
    """Whether a row of `samples.parquet` is plain text."""
    return not row["prompt"]


def taken(rows: Sequence[Mapping[str, Any]], training: TrainingConfiguration) -> list[Mapping[str, Any]]:
    """The rows that a training uses at all: its kinds of plain text, and not an objective whose share is 0."""
    share, kinds = training.plain_text_share, training.plain_text_kinds
    return [
        row
        for row in rows
        if (share != 0 and (kinds is None or row["kind"] in kinds) if is_plain_text(row) else share != 1)
    ]


def plain_text_ids(rows: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Ids of the plain text among rows."""
    return frozenset(str(row["sample_id"]) for row in rows if is_plain_text(row))


def plain_text_per_epoch(questions: int, plain: int, share: float | None) -> int:
    """Plain-text samples of an epoch. Raises `InputError` where there are too few for the share, or no questions."""
    if share is None or share in (0, 1):
        return 0 if share == 0 else plain
    if not questions:
        raise InputError(
            f"plain text is to be {share:g} of the samples, and there is nothing else", "set objective_mix ratio to 1"
        )
    exact = questions * share / (1 - share)
    if exact > plain + 1:
        most = plain / (plain + questions)
        raise InputError(
            f"plain text is to be {share:g} of the samples: {round(exact)} beside {questions} questions with answers, "
            f"and there are {plain}",
            f"set the ratio of objective_mix to {int(most * 1000) / 1000:g} or less, or add text (manuals, notes); a "
            "run whose data was approved keeps what it began with: gatewright close ends it, then start a new one",
        )
    return min(round(exact), plain)


def samples_per_epoch(questions: int, plain: int, share: float | None) -> int:
    """Samples of an epoch, out of so many questions and so much plain text."""
    return (0 if share == 1 else questions) + plain_text_per_epoch(questions, plain, share)


def epoch_samples(
    samples: Sequence[Sized], plain: Collection[str], training: TrainingConfiguration, epoch: int
) -> list[Sized]:
    """What an epoch (from 1) takes of the samples: all of them without a mix.

    Plain text has its turn in a fixed random order, so that no sample is taken twice before every one was taken.
    """
    share = training.plain_text_share
    if share is None or share in (0, 1):
        return list(samples)
    texts = sorted(sample for sample in samples if sample[0] in plain)
    questions = [sample for sample in samples if sample[0] not in plain]
    count = plain_text_per_epoch(len(questions), len(texts), share)
    random.Random(f"objective mix {training.seed}").shuffle(texts)
    first = (epoch - 1) * count
    return questions + [texts[(first + k) % len(texts)] for k in range(count)]
