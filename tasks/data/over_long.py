"""The over-long rule: what becomes of samples past `max_length`. Nothing is cut by default, and answers never are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from specs.base import Language
from specs.errors import InputError
from specs.parameters import DataParameters
from tasks.data.lengths import Measured, measure
from tasks.data.paragraphs import sentence_places
from tasks.data.records import Draft
from tasks.data.wording import prompt_length, shorten_prompt
from tasks.prompts import PromptTemplate


@dataclass(frozen=True, slots=True)
class Fitted:
    """Samples within the limit, drafts that were put on the drop list, and how many were changed how."""

    samples: list[Measured]
    dropped: list[Measured]
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Limit:
    """The limit, and all that it takes to measure a draft against it."""

    tokens: int
    language: Language
    template: PromptTemplate

    def measure(self, draft: Draft) -> Measured:
        """The draft, rendered and tokenised."""
        return measure(draft, self.language, self.template)

    def holds(self, draft: Draft) -> bool:
        """Whether the draft is not too long."""
        return self.measure(draft).n_tokens <= self.tokens


def fit(
    measured: Sequence[Measured], parameters: DataParameters, language: Language, template: PromptTemplate
) -> Fitted:
    """Apply the over-long rule. Without `max_length` the longest sample decides and nothing is touched.

    `ask` raises `InputError` that lists the samples and the ways out. `split` divides plain text at sentences and
    conversations at turns; `truncate_prompt` shortens what stands before the answer; what either cannot make fit is
    asked about. Answers are never cut.
    """
    if parameters.max_length is None or all(m.n_tokens <= parameters.max_length for m in measured):
        return Fitted(list(measured), [])
    limit = _Limit(parameters.max_length, language, template)
    over = [m for m in measured if m.n_tokens > limit.tokens]
    if parameters.over_long == "ask":
        raise _ask(over, limit.tokens, "ask")
    if parameters.over_long == "drop_list":
        return Fitted([m for m in measured if m.n_tokens <= limit.tokens], over)
    splits = parameters.over_long == "split"
    fitted = Fitted([], [])
    stuck: list[Measured] = []
    for m in measured:
        if m.n_tokens <= limit.tokens:
            fitted.samples.append(m)
            continue
        pieces, changes = (_split if splits else _shortened)(m, limit)
        fitted.samples.extend(pieces)
        fitted.counts.update(changes)
        if not pieces:
            stuck.append(m)
    if stuck:
        raise _ask(stuck, limit.tokens, parameters.over_long)
    return fitted


def _ask(over: Sequence[Measured], limit: int, tried: str) -> InputError:
    """What is too long, why the rule that was `tried` cannot help, and the ways out that are left."""
    listed = sorted(over, key=lambda m: (-m.n_tokens, m.draft.unit.key))
    lines = [f"  {m.draft.unit.source} {m.draft.unit.location}: {m.n_tokens} tokens" for m in listed[:20]]
    more = [f"  and {len(listed) - 20} more"] if len(listed) > 20 else []
    last_only = tried == "split" and any(m.draft.unlearnt for m in over)
    weighted = tried == "split" and any(m.draft.silent for m in over)
    lost = [
        f"turns that are only read, {cause}, would be lost by dividing"
        for cause, is_so in (("under conversation_loss: last_answer", last_only), ("by their weight of 0", weighted))
        if is_so
    ]
    because = f" ({'; '.join([_WHY[tried], *lost])})" if tried in _WHY else ""
    learnt = ["let every answer be learnt (conversation_loss: every_answer)"] if last_only else []
    ways = [f"over_long: {rule} ({what})" for rule, what in _RULES.items() if rule != tried]
    return InputError(
        "\n".join([f"{len(over)} samples are longer than max_length = {limit} tokens{because}:", *lines, *more]),
        f"nothing is cut unless you say so: raise max_length to {listed[0].n_tokens} (needs more memory), "
        + ", or ".join([*learnt, f"set {', or '.join(ways)}"]),
    )


_RULES = {
    "drop_list": "they go to quarantine",
    "split": "plain text at sentences, conversations at answers that are learnt",
    "truncate_prompt": "questions are cut at their end, and the oldest turns that are only read are left out",
}
_WHY = {
    "split": (
        "split divides plain text at sentences and conversations at answers that are learnt, and no part may be "
        "longer by itself"
    ),
    "truncate_prompt": "without their prompts they are still too long",
}


Change = tuple[list[Measured], tuple[str, ...]]
"""What was made of a sample, nothing where it cannot be made to fit, and the names of the changes."""


def _split(m: Measured, limit: _Limit) -> Change:
    draft = m.draft
    if draft.earlier:
        divided = _conversation(draft, limit, lambda alone: [])
        return ([] if divided.lost else divided.parts), ("split_conversations",)
    return ([] if draft.prompt or not draft.plain else _sentences(m, limit)), ("split_texts",)


def _sentences(m: Measured, limit: _Limit) -> list[Measured]:
    """Plain text in as few runs of whole sentences as fit, as they stand; empty when a sentence does not fit."""
    text = m.answer
    runs: list[tuple[int, int]] = []
    for start, end in sentence_places(text):
        if runs and len(limit.template.encode("", text[runs[-1][0] : end]).input_ids) <= limit.tokens:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    pieces = [limit.measure(replace(m.draft, plain=text[start:end], part=n)) for n, (start, end) in enumerate(runs)]
    return pieces if all(piece.n_tokens <= limit.tokens for piece in pieces) else []


def _shortened(m: Measured, limit: _Limit) -> Change:
    """A prompt cut at its end; of a conversation the oldest turns go first, and what is learnt of them stands alone."""
    if not m.draft.earlier:
        return _truncate(m, limit), ("shortened",)
    divided = _conversation(m.draft, limit, lambda alone: _truncate(limit.measure(alone), limit))
    changes = {
        "split_conversations": len(divided.parts) > 1,
        "turns_dropped": divided.lost > 0,
        "shortened": divided.shortened,
    }
    return divided.parts, tuple(Counter(changes).elements())


@dataclass(slots=True)
class _Divided:
    """The parts of a conversation, none where there is no way; how many turns are in none, and how many were cut."""

    parts: list[Measured] = field(default_factory=list)
    lost: int = 0
    shortened: int = 0


def _conversation(draft: Draft, limit: _Limit, alone: Callable[[Draft], list[Measured]]) -> _Divided:
    """A conversation in as few parts as fit, every answer that is learnt in one of them.

    A part begins with the oldest whole turns that there is room for, and these are only read. It ends with an answer
    that is learnt. `alone` says what becomes of a turn that does not even fit by itself. What is in no part counts
    as cut from the part behind it.
    """
    count = 1 + len(draft.earlier) // 2
    found = _Divided()
    start, told, unread = draft.unlearnt, 0, draft.left_out
    while start < count:
        if start in draft.silent:
            start += 1
            continue
        first, end = start, start + 1
        if fits := limit.holds(_turns(draft, start, start, end)):
            first, end = _place(draft, start, count, limit)
        pieces = [limit.measure(_turns(draft, first, start, end))] if fits else alone(_turns(draft, start, start, end))
        if not pieces:
            return _Divided()
        lost = max(0, first - told)
        cut = 0
        if lost or not fits:
            cut = limit.measure(_turns(draft, first - lost, start, end)).n_tokens - pieces[0].n_tokens
        part = replace(pieces[0].draft, part=len(found.parts), cut_tokens=cut, left_out=unread + 2 * lost)
        found.parts.append(replace(pieces[0], draft=part))
        found.lost += lost
        found.shortened += not fits
        start, told, unread = end, end, 0
    return found


def _place(draft: Draft, start: int, count: int, limit: _Limit) -> tuple[int, int]:
    """(first turn, turn after the last) of a part: most turns from `start` on, then most older ones, that there is
    room for."""
    end = start + 1 + _most(count - start - 1, lambda n: limit.holds(_turns(draft, start, start, start + 1 + n)))
    while end - 1 in draft.silent:
        end -= 1
    return start - _most(start, lambda n: limit.holds(_turns(draft, start - n, start, end))), end


def _turns(draft: Draft, first: int, learnt: int, end: int) -> Draft:
    """The draft with its turns from `first` to before `end`, of which those from `learnt` on are learnt."""
    texts = (*draft.earlier, draft.prompt, draft.plain)
    *earlier, prompt, plain = texts[2 * first : 2 * end]
    silent = tuple(n - first for n in draft.silent if learnt <= n < end)
    return replace(draft, earlier=tuple(earlier), prompt=prompt, plain=plain, unlearnt=learnt - first, silent=silent)


def _most(at_most: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to `at_most` that holds, by bisection: 0 does, and nothing above one that does not."""
    low, high = 0, at_most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _truncate(m: Measured, limit: _Limit) -> list[Measured]:
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
        trial = limit.measure(shorter)
        if trial.n_tokens <= limit.tokens:
            best, low = trial, middle + 1
        else:
            high = middle - 1
    if best is None:
        return []
    return [replace(best, draft=replace(best.draft, cut_tokens=m.n_tokens - best.n_tokens))]
