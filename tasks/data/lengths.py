"""Lengths by the real tokenizer and template; the over-long rule; bucket edges that minimise padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specs.base import Language
from specs.errors import InputError
from specs.parameters import DataParameters
from tasks.data.paragraphs import sentences
from tasks.data.records import Draft
from tasks.data.shingles import F64, I64
from tasks.data.wording import prompt_length, render, shorten_prompt
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
    encoded = template.encode_many([prompt for prompt, _ in rendered], [answer for _, answer in rendered])
    return [
        Measured(
            draft,
            prompt,
            answer,
            len(one.input_ids),
            len(one.input_ids) - one.trainable_from,
            flaw(one, answer, template),
        )
        for draft, (prompt, answer), one in zip(drafts, rendered, encoded, strict=True)
    ]


def flaw(encoded: Encoded, answer: str, template: PromptTemplate) -> str:
    """Why the tokens of a sample would teach nothing, or never to stop; an empty string when they are fine."""
    ids, learnt = encoded.input_ids, encoded.input_ids[encoded.trainable_from :]
    begin, end = template.tokenizer.bos_token_id, template.tokenizer.eos_token_id
    if not answer.strip() or len(learnt) < 2:
        return "no_trainable_token"
    if learnt[-1] != end:
        return "no_end_token"
    if learnt[-2] == end:
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


@dataclass(frozen=True, slots=True)
class Fitted:
    """Samples within the limit, and drafts that were put on the drop list."""

    samples: list[Measured]
    dropped: list[Measured]
    split: int = 0
    shortened: int = 0


def fit(
    measured: Sequence[Measured], parameters: DataParameters, language: Language, template: PromptTemplate
) -> Fitted:
    """Apply the over-long rule. Without `max_length` the longest sample decides and nothing is touched.

    `ask` raises `InputError` that lists the samples and the ways out. `split` divides plain text only and
    `truncate_prompt` cuts the prompt only; what either cannot make fit is asked about. Answers are never cut.
    """
    limit = parameters.max_length
    over = [m for m in measured if limit is not None and m.n_tokens > limit]
    if limit is None or not over:
        return Fitted(list(measured), [])
    if parameters.over_long == "ask":
        raise _ask(over, limit, "")
    if parameters.over_long == "drop_list":
        return Fitted([m for m in measured if m.n_tokens <= limit], over)
    samples: list[Measured] = []
    stuck: list[Measured] = []
    for m in measured:
        if m.n_tokens <= limit:
            samples.append(m)
            continue
        change = _split if parameters.over_long == "split" else _truncate
        pieces = change(m, limit, language, template)
        samples.extend(pieces)
        if not pieces:
            stuck.append(m)
    if stuck:
        reason = (
            "split applies to plain text only" if parameters.over_long == "split" else "their answers alone do not fit"
        )
        raise _ask(stuck, limit, reason)
    count = len(over)
    return Fitted(samples, [], *((count, 0) if parameters.over_long == "split" else (0, count)))


def _ask(over: Sequence[Measured], limit: int, reason: str) -> InputError:
    listed = sorted(over, key=lambda m: (-m.n_tokens, m.draft.unit.key))
    lines = [f"  {m.draft.unit.source} {m.draft.unit.location}: {m.n_tokens} tokens" for m in listed[:20]]
    more = [f"  and {len(listed) - 20} more"] if len(listed) > 20 else []
    because = f" ({reason})" if reason else ""
    return InputError(
        "\n".join([f"{len(over)} samples are longer than max_length = {limit} tokens{because}:", *lines, *more]),
        f"nothing is cut unless you say so: raise max_length to {listed[0].n_tokens} (needs more memory), "
        "set over_long: drop_list (they go to quarantine), or over_long: split (plain text) or truncate_prompt",
    )


def _split(m: Measured, limit: int, language: Language, template: PromptTemplate) -> list[Measured]:
    """Plain text in as few runs of whole lines and sentences as fit; empty when a single sentence does not fit."""
    if not m.draft.plain or m.draft.prompt:
        return []
    atoms = [("\n" if k == 0 else " ", s) for line in m.answer.split("\n") for k, s in enumerate(sentences(line))]
    runs: list[str] = []
    for glue, atom in atoms:
        joined = runs[-1] + glue + atom if runs else atom
        if runs and len(template.encode("", joined).input_ids) <= limit:
            runs[-1] = joined
        else:
            runs.append(atom)
    pieces = [measure(replace(m.draft, plain=run, part=number), language, template) for number, run in enumerate(runs)]
    return pieces if all(piece.n_tokens <= limit for piece in pieces) else []


def _truncate(m: Measured, limit: int, language: Language, template: PromptTemplate) -> list[Measured]:
    """The draft with the longest beginning of its prompt that fits, found by bisection."""
    low, high = 0, prompt_length(m.draft)
    best: Measured | None = None
    while low <= high:
        middle = (low + high) // 2
        if middle == 0:
            break
        shorter = shorten_prompt(m.draft, middle)
        if not prompt_length(shorter):  # so short that only half a placeholder would be left
            low = middle + 1
            continue
        trial = measure(shorter, language, template)
        if trial.n_tokens <= limit:
            best, low = trial, middle + 1
        else:
            high = middle - 1
    if best is None:
        return []
    return [replace(best, draft=replace(best.draft, cut_tokens=m.n_tokens - best.n_tokens))]


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
