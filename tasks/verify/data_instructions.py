"""Instruction files read once: which units they hold, and whether every sample says what its record says.

A conversation is compared turn by turn with what was made of it: which turns its samples hold, which of their answers
are learnt, and what was left out of a prompt.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.prompts import PromptTemplate
from tasks.turns import Turn, Turns, turns_of
from tasks.verify import personal
from tasks.verify.data_answers import Answers
from tasks.verify.data_claims import CUT_STEP, cut_miscounted, messages_left_out
from tasks.verify.data_fates import Gone
from tasks.verify.data_rows import RawFiles
from tasks.verify.data_words import in_order
from tasks.verify.findings import CLAIMS, Findings
from tasks.verify.parquet_rows import Keys, keys_of, place_of
from tasks.verify.raw_instructions import Answer, Record, records_of

METRIC = "samples_without_provenance"
_TURN_LABEL = re.compile(r"^(?:Question \d+: |Answer \d+: |第\d+[问答]：)+", re.MULTILINE)
_CUT_LABEL = re.compile(
    r"\n(?:Q(?:u(?:e(?:s(?:t(?:io?|ion(?: \d*:?)?)?)?)?)?)?|A(?:n(?:s(?:we?|wer(?: \d*:?)?)?)?)?|第\d*[问答]?)$"
)
"""What is left of the label of a turn where the prompt was cut inside it."""
Fault = tuple[str, str]
"""A metric, and what is wrong in words."""


def look_at_instructions(
    files: RawFiles,
    template: PromptTemplate,
    answers: Answers,
    cut: Mapping[int, int],
    gone: Gone,
    findings: Findings,
) -> Keys:
    """Compare every record with its samples; the keys of all units."""
    units = array("Q")
    rules, left_out = _Rules.of(files, template), messages_left_out(files)
    for name, path, _ in files.files("instructions"):
        for record in records_of(path, files.encoding(name)):
            where = [record.location] if files.whole_conversations else [a.location for a in record.answers()]
            places = [place_of(name, location) for location in where]
            units.extend(places)
            for place, location in zip(places, where, strict=True):
                gone.quarantine.compare_record(place, f"{name}|{location}", record.raw, findings)
            if files.whole_conversations:
                place = places[0]
                gone.merges.take_record(place, record)
                samples = answers.rows(place)
                unsaid = left_out.get(place, 0) if files.counts_messages else None
                faults = rules.faults(record, samples, cut.get(place, 0), place in files.masked_characters, unsaid)
                for metric, wrong in faults if samples else ():
                    findings.add(metric, f"{name}|{record.location}", wrong)
                for person in _named_again(files, record, samples):
                    findings.add("personal_data_left", f"{name}|{record.location}", f"it still names {person}")
                continue
            for place, answer in zip(places, record.answers(), strict=True):
                gone.merges.take_text(place, f"{answer.said}\n{answer.answer}")
                _compare_answer(files, f"{name}|{answer.location}", place, answer, answers, cut, template, findings)
    return keys_of(units)


def _named_again(files: RawFiles, record: Record, samples: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names masked beside their title in one turn of a record and left in another one."""
    if files.spec.get("personal_data") == "keep":
        return []
    said = [text for s in samples for text in (*(turn.text for turn in turns_of(s)), s["prompt"], s["answer"])]
    told = [record.system, *(text for pair in record.pairs for text in pair)]
    return personal.named_again(told, said, files.spec.get("personal_data_allowed") or ())


@dataclass(frozen=True, slots=True)
class _Part:
    """One sample of a conversation: turns from number `first` of its record on."""

    system: str
    pairs: tuple[tuple[str, str], ...]
    first: int

    @property
    def end(self) -> int:
        """The number of the turn after the last one."""
        return self.first + len(self.pairs)


@dataclass(frozen=True, slots=True)
class _Rules:
    """What the parameters allow to be done to a conversation."""

    template: PromptTemplate
    limit: int | None
    divides: bool
    drops: bool
    last_only: bool
    counts_turns: bool = True
    """Whether turns that are in no part count as cut; in older runs only where the last answer alone is learnt."""

    @classmethod
    def of(cls, files: RawFiles, template: PromptTemplate) -> _Rules:
        """The rules of a run."""
        p = files.parameters
        divides, drops = p.over_long in ("split", "truncate_prompt"), p.over_long == "truncate_prompt"
        last_only = p.conversation_loss == "last_answer"
        return cls(template, p.max_length, divides, drops, last_only, files.counts_messages)

    def faults(
        self,
        record: Record,
        samples: Sequence[Mapping[str, Any]],
        claimed: int,
        masked: bool,
        unsaid: int | None = None,
    ) -> Iterator[Fault]:
        """What is wrong with the samples of a record, the first fault of its words only.

        `claimed` tokens are said to be cut, and `unsaid` messages to be in no sample (None: nothing is said).
        """
        if not record.pairs:
            yield METRIC, "its record is no conversation"
            return
        try:
            parts = _parts(record, samples, self.last_only)
        except ValueError as error:
            yield METRIC, str(error)
            return
        for number, part in enumerate(parts):
            wrong = _words_fault(record, part, claimed > 0 and self._may_cut(parts, number))
            if wrong:
                yield METRIC, wrong
                return
        told = len({number for part in parts for number in range(part.first, part.end)})
        if unsaid is not None and unsaid != record.messages - 2 * told:
            yield CLAIMS, f"{unsaid} messages said to be in no sample, and {record.messages - 2 * told} are"
        for part in parts:
            if self._badly_cut(record, part, claimed, masked):
                yield CLAIMS, f"its question is cut, and it is not as long as the limit of {self.limit} tokens"
        if not masked:
            yield from ((CLAIMS, wrong) for wrong in self._length_faults(record, parts, claimed))

    def _badly_cut(self, record: Record, part: _Part, claimed: int, masked: bool) -> bool:
        """Whether more of a question is gone than had to. Of masked ones it is known only where nothing else can be."""
        if not claimed or self.limit is None or len(part.pairs) > 1:
            return False
        cut = len(record.pairs) == 1 if masked else part.pairs[0][0] != record.pairs[part.first][0]
        return cut and not self.limit - CUT_STEP <= self._said(part) <= self.limit

    def _may_cut(self, parts: Sequence[_Part], number: int) -> bool:
        """A question is cut only where it stands alone with its answer."""
        return self.drops and len(parts[number].pairs) == 1

    def _length_faults(self, record: Record, parts: Sequence[_Part], claimed: int) -> Iterator[str]:
        """What was divided, dropped or cut without need, or miscounted. Both are tokenised again."""
        count = len(record.pairs)
        if len(parts) == 1 and len(parts[0].pairs) == count and not claimed:
            return
        whole = self._tokens(record, 0, count)
        if self.limit is None or not self.divides or whole <= self.limit:
            yield "divided or without its oldest turns, though nothing makes that necessary"
            return
        for part in parts:
            before = part.first - 1
            if before >= 0 and self._tokens(record, before, part.end) <= self.limit:
                yield "older turns are left out of a part that has room for them"
        told = {number for part in parts for number in range(part.first, part.end)}
        if len(told) < count and not self.drops:
            yield "a turn of its record is in none of its samples, and the parameters let none be left out"
        cut = self._cut(record, parts)
        if cut != claimed:
            yield f"{claimed} tokens said to be cut, and {cut} are"

    def _cut(self, record: Record, parts: Sequence[_Part]) -> int:
        """Tokens of questions that were cut, and of turns that are in no part, with those of the part behind them."""
        counts = self.counts_turns or self.last_only
        at = total = 0
        for part in parts:
            first = min(at, part.first) if counts else part.first
            total += self._tokens(record, first, part.end) - self._said(part)
            at = part.end
        return total

    def _tokens(self, record: Record, first: int, end: int) -> int:
        return self._said(_Part(record.system, record.pairs[first:end], first))

    def _said(self, part: _Part) -> int:
        *before, (question, answer) = part.pairs
        turns: Turns = (Turn("system", part.system),) if part.system else ()
        for asked, said in before:
            turns = (*turns, Turn("user", asked), Turn("assistant", said))
        return len(self.template.encode(question, answer, turns).input_ids)


def _parts(record: Record, samples: Sequence[Mapping[str, Any]], last_only: bool) -> list[_Part]:
    """The samples of a record as parts of it. Raises `ValueError` where they do not make it up."""
    count = len(record.pairs)
    meant = [at for at in range(count - 1 if last_only else 0, count) if at not in record.unlearnt]
    parts: list[_Part] = []
    for sample in samples:
        turns = turns_of(sample)
        system = turns[0].text if turns and turns[0].role == "system" else ""
        said = turns[1:] if system else turns
        if [turn.role for turn in said] != ["user", "assistant"] * (len(said) // 2):
            raise ValueError("its turns are not questions and answers in turn")
        learns = [*(turn.learnt for turn in said[1::2]), True]
        mine, meant = meant[: sum(learns)], meant[sum(learns) :]
        if len(mine) < sum(learns) or mine[-1] + 1 < len(learns):
            raise ValueError("it has more turns than its record, or learns an answer twice")
        first = mine[-1] + 1 - len(learns)
        if any(turn.learnt for turn in said[::2]) or learns != [first + n in mine for n in range(len(learns))]:
            raise ValueError("a question is learnt, or other answers are than those that are meant to be")
        texts = [*(turn.text for turn in said), sample["prompt"], sample["answer"]]
        parts.append(_Part(system, tuple(zip(texts[::2], texts[1::2], strict=True)), first))
    if meant:
        raise ValueError("an answer of its record is learnt in none of its samples")
    return parts


def _words_fault(record: Record, part: _Part, cut: bool) -> str:
    """Whether a part says something else than the turns of its record, in words."""
    if not in_order(part.system, record.system):
        return "its system text is not that of the record"
    for number, (question, answer) in enumerate(part.pairs):
        asked, answered = record.pairs[part.first + number]
        if not in_order(answer, answered):
            return "its answer is not that of the record"
        if not in_order(question, asked, begins=cut):
            return "it asks something else than the record"
    return ""


def _compare_answer(
    files: RawFiles,
    name: str,
    place: int,
    answer: Answer,
    answers: Answers,
    cut: Mapping[int, int],
    template: PromptTemplate,
    findings: Findings,
) -> None:
    """A sample of an older run, which has one answer of a conversation and all turns before it as its prompt."""
    found = answers.at(place)
    if found is None:
        return
    claimed = cut.get(place, 0)
    prompt = _CUT_LABEL.sub("", found.prompt) if claimed and answer.several else found.prompt
    asked, said = (_TURN_LABEL.sub("", t) if answer.several else t for t in (prompt, answer.said))
    if not answer.answer or not in_order(found.answer, answer.answer):
        findings.add(METRIC, name, "its answer is not that of the record")
    elif not in_order(asked, said, begins=claimed > 0):
        findings.add(METRIC, name, "it asks something else than the record")
    elif claimed and not answer.several and place not in files.masked_characters and said.startswith(prompt):
        wrong = cut_miscounted(claimed, said, prompt, found.answer, template)
        if wrong:
            findings.add(CLAIMS, name, wrong)
