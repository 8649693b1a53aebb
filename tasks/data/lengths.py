"""Lengths by the real tokenizer and template, what makes a sample unusable, bucket edges that minimise padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specs.base import Language
from specs.parameters import DataParameters
from tasks.data.records import Draft
from tasks.data.shingles import F64, I64
from tasks.data.wording import render
from tasks.prompts import Encoded, PromptTemplate


@dataclass(frozen=True, slots=True)
class Measured:
    """A rendered draft with its tokens: `n_tokens` in all, of which `learnt` are trained on."""

    draft: Draft
    prompt: str
    answer: str
    n_tokens: int
    learnt: int
    flaw: str = ""


def measure(draft: Draft, language: Language, template: PromptTemplate) -> Measured:
    """Render and tokenise one draft."""
    return measure_many([draft], language, template)[0]


def measure_many(drafts: Sequence[Draft], language: Language, template: PromptTemplate) -> list[Measured]:
    """Render and tokenise drafts, and name what makes a sample unusable."""
    rendered = [render(draft, language) for draft in drafts]
    before = [draft.turns() for draft in drafts]
    encoded = template.encode_many([prompt for prompt, _ in rendered], [answer for _, answer in rendered], before)
    return [
        Measured(
            draft,
            prompt,
            answer,
            len(one.input_ids),
            sum(end - start for start, end in one.answers),
            flaw(one, prompt, answer, template),
        )
        for draft, (prompt, answer), one in zip(drafts, rendered, encoded, strict=True)
    ]


def flaw(encoded: Encoded, prompt: str, answer: str, template: PromptTemplate) -> str:
    """Why the tokens of a sample would teach nothing, or never to stop; an empty string when they are fine."""
    ids, learnt = encoded.input_ids, [encoded.input_ids[start:end] for start, end in encoded.answers]
    begin, end = template.tokenizer.bos_token_id, template.end_of(prompt).id
    if not answer.strip() or any(len(one) < 2 for one in learnt):
        return "no_trainable_token"
    if any(one[-1] != end for one in learnt):
        return "no_end_token"
    if any(one[-2] == end for one in learnt):
        return "doubled_end_token"
    if begin is not None and begin != end and ids[:2] == [begin, begin]:
        return "doubled_begin_token"
    return ""


def unusable(measured: Measured, parameters: DataParameters) -> str:
    """Why a rendered sample cannot be trained on, or an empty string."""
    if measured.flaw:
        return measured.flaw
    if parameters.over_long == "drop_list" and parameters.max_length and measured.n_tokens > parameters.max_length:
        return "over_long"
    return ""


def bucket_edges(lengths: Sequence[int] | I64, buckets: int) -> list[int]:
    """Upper edges of at most `buckets` buckets that minimise the padding of `lengths`, by dynamic programming.

    Exact, in O(buckets * V log V) for V distinct lengths: where the best last bucket of a prefix begins never moves
    back as the prefix grows, so it is searched between the answers for a shorter and a longer one.
    """
    if not len(lengths):
        return []
    values, counts = np.unique(np.asarray(lengths, dtype=np.int64), return_counts=True)
    total = np.concatenate([[0], np.cumsum(counts)]).astype(np.float64)
    number = min(buckets, len(values))
    cost = np.full(len(values) + 1, np.inf)
    cost[0] = 0.0
    backs: list[I64] = []
    for _ in range(number):
        cost, back = _layer(cost, values.astype(np.float64), total)
        backs.append(back)
    edges: list[int] = []
    end = len(values)
    for back in reversed(backs):
        edges.append(int(values[end - 1]))
        end = int(back[end])
    return edges[::-1]


def _layer(cost: F64, values: F64, total: F64) -> tuple[F64, I64]:
    """(least padded tokens of each prefix with one bucket more, where its last bucket begins)."""
    following = np.full(len(cost), np.inf)
    back = np.zeros(len(cost), np.int64)
    pending = [(1, len(values), 0, len(values) - 1)]
    while pending:
        low, high, first, last = pending.pop()
        if low > high:
            continue
        end = (low + high) // 2
        start = np.arange(first, min(end - 1, last) + 1)
        padded = cost[start] + values[end - 1] * (total[end] - total[start])
        best = int(np.argmin(padded)) if np.isfinite(padded).any() else 0
        following[end], back[end] = padded[best], start[best]
        pending += [(low, end - 1, first, int(start[best])), (end + 1, high, int(start[best]), last)]
    return following, back
