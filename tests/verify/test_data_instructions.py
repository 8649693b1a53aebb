"""Samples of a conversation against its record: every fault is named, and nothing that the stage does is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.errors import InputError
from specs.parameters import DataParameters
from tasks.data.lengths import measure
from tasks.data.over_long import fit
from tasks.data.records import Draft, Unit
from tasks.prompts import PromptTemplate
from tasks.turns import Turn, rows_of
from tasks.verify.data_instructions import _Rules
from tasks.verify.raw_instructions import Record

PAIRS = (
    ("What does the red lamp mean?", "It is hot."),
    ("And the yellow one?", "Change the filter."),
    ("Which?", "G7."),
)
RECORD = Record(2, "Answer shortly.", PAIRS, "")
Sample = dict[str, Any]


@pytest.fixture(scope="module")
def template(tiny_model: Path) -> PromptTemplate:
    return PromptTemplate.load(tiny_model)


def draft_of(record: Record, last_only: bool = False) -> Draft:
    *earlier, prompt, plain = (text for pair in record.pairs for text in pair)
    before = len(record.pairs) - 1 if last_only else 0
    silent = () if last_only else tuple(sorted(record.unlearnt))
    return Draft(
        Unit("c.jsonl", "#2"), "instruction", "", prompt=prompt, plain=plain, system=record.system,
        earlier=tuple(earlier), unlearnt=before, silent=silent,
    )  # fmt: skip


def sample_of(draft: Draft) -> Sample:
    return {"prompt": draft.prompt, "answer": draft.plain, "earlier": rows_of(draft.turns())}


def rules(template: PromptTemplate, limit: int | None = None, over_long: str = "ask", last: bool = False) -> _Rules:
    divides, drops = over_long in ("split", "truncate_prompt"), over_long == "truncate_prompt"
    return _Rules(template, limit, divides, drops, last)


def turn(sample: Sample, number: int, **changes: Any) -> Sample:
    earlier = [dict(one) for one in sample["earlier"]]
    earlier[number] |= changes
    return {**sample, "earlier": earlier}


def without(sample: Sample, *numbers: int) -> Sample:
    return {**sample, "earlier": [one for n, one in enumerate(sample["earlier"]) if n not in numbers]}


FAULTS: dict[str, Callable[[Sample], list[Sample]]] = {
    "an earlier answer altered": lambda s: [turn(s, 2, text="It is cold.")],
    "an earlier question altered": lambda s: [turn(s, 3, text="And the green one?")],
    "the last question altered": lambda s: [{**s, "prompt": "Who?"}],
    "the last answer altered": lambda s: [{**s, "answer": "G8."}],
    "another system text": lambda s: [turn(s, 0, text="Answer at length.")],
    "no system text": lambda s: [without(s, 0)],
    "the oldest turn dropped": lambda s: [without(s, 1, 2)],
    "an earlier turn dropped": lambda s: [without(s, 3, 4)],
    "an answer not learnt": lambda s: [turn(s, 2, learnt=False)],
    "the later of two not learnt": lambda s: [turn(s, 4, learnt=False)],
    "a question learnt": lambda s: [turn(s, 1, learnt=True)],
    "an answer that the user gives": lambda s: [turn(s, 2, role="user")],
    "two turns exchanged": lambda s: [{**s, "earlier": [s["earlier"][i] for i in (0, 3, 4, 1, 2)]}],
    "everything twice": lambda s: [s, s],
    "a turn twice": lambda s: [{**s, "earlier": [*s["earlier"], *s["earlier"][3:]]}],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_of_a_turn_is_named_once(template: PromptTemplate, fault: str):
    honest = sample_of(draft_of(RECORD))
    assert not list(rules(template).faults(RECORD, [honest], 0, False))
    assert [metric for metric, _ in rules(template).faults(RECORD, FAULTS[fault](honest), 0, False)] == [
        "samples_without_provenance"
    ]


def whole_tokens(template: PromptTemplate, record: Record) -> int:
    return measure(draft_of(record), "en", template).n_tokens


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 10)), min_size=1, max_size=6),
    st.sampled_from(["split", "truncate_prompt"]),
    st.booleans(),
    st.integers(0, 100),
    st.sets(st.integers(0, 4)),
)
def test_what_the_over_long_rule_makes_of_a_conversation_is_no_fault(
    template: PromptTemplate, sizes: list[tuple[int, int]], rule: str, last: bool, share: int, unlearnt: set[int]
):
    pairs = tuple((f"why {n} " + "x" * asked, f"oil {n} " + "y" * said) for n, (asked, said) in enumerate(sizes))
    record = replace(RECORD, pairs=pairs, unlearnt=frozenset(n for n in unlearnt if n < len(pairs) - 1))
    limit = max(16, whole_tokens(template, record) * share // 100)
    parameters = DataParameters.model_validate({"max_length": limit, "over_long": rule})
    try:
        fitted = fit([measure(draft_of(record, last), "en", template)], parameters, "en", template).samples
    except InputError:
        return
    samples = [sample_of(m.draft) for m in fitted]
    claimed = sum(m.draft.cut_tokens for m in fitted)
    assert list(rules(template, limit, rule, last).faults(record, samples, claimed, False)) == []
    learnt = [t.text for m in fitted for t in (*m.draft.turns(), Turn("assistant", m.draft.plain, True)) if t.learnt]
    meant = [a for n, (_, a) in enumerate(pairs) if n not in record.unlearnt]
    assert learnt == (meant[-1:] if last else meant), "every answer that is to be learnt is, once, and no other one"
    if claimed or len(samples) > 1:
        assert list(rules(template, limit, "drop_list", last).faults(record, samples, claimed, False))
        assert list(rules(template, None, rule, last).faults(record, samples, claimed, False))
    if claimed:
        assert list(rules(template, limit, rule, last).faults(record, samples, claimed + 1, False))
    told = {said for m in fitted for said in (*m.draft.earlier, m.draft.prompt, m.draft.plain)}
    lost = sum(asked not in told and said not in told for asked, said in pairs)
    unsaid = sum(m.draft.left_out for m in fitted)
    assert unsaid == 2 * lost
    if not lost:
        return
    assert claimed, "no turn is lost uncounted"
    counted = replace(record, messages=2 * len(pairs))
    assert list(rules(template, limit, rule, last).faults(counted, samples, claimed, False, unsaid)) == []
    assert list(rules(template, limit, rule, last).faults(counted, samples, claimed, False, 0))


def test_an_answer_of_weight_0_that_is_learnt_and_a_turn_lost_by_dividing_are_named(template: PromptTemplate):
    record = replace(RECORD, unlearnt=frozenset({0}))
    meant = sample_of(draft_of(record))
    assert list(rules(template).faults(record, [meant], 0, False)) == []
    learns_all = sample_of(draft_of(RECORD))
    for wrong, of in ((learns_all, record), (meant, RECORD)):
        assert [metric for metric, _ in rules(template).faults(of, [wrong], 0, False)] == ["samples_without_provenance"]
    lost = sample_of(draft_of(replace(RECORD, pairs=PAIRS[1:])))
    limit = whole_tokens(template, RECORD) - 1
    gone = limit + 1 - whole_tokens(template, replace(RECORD, pairs=PAIRS[1:]))
    assert list(rules(template, limit, "truncate_prompt").faults(record, [lost], gone, False)) == []
    (uncounted,) = rules(template, limit, "truncate_prompt").faults(record, [lost], 0, False)
    assert uncounted[1] == f"0 tokens said to be cut, and {gone} are"
    older = replace(rules(template, limit, "truncate_prompt"), counts_turns=False)
    assert list(older.faults(record, [lost], 0, False)) == []
    (fault,) = rules(template, limit, "split").faults(record, [lost], gone, False)
    assert fault[1].startswith("a turn of its record is in none of its samples")


def test_a_question_cut_further_than_the_limit_asks_for_is_named(template: PromptTemplate):
    record = replace(RECORD, pairs=(("why " + "x " * 40, "It is hot."),))
    left = replace(draft_of(record), prompt=record.pairs[0][0][:20])
    whole, now = (measure(d, "en", template).n_tokens for d in (draft_of(record), left))
    faults = rules(template, whole - 5, "truncate_prompt").faults(record, [sample_of(left)], whole - now, False)
    assert [wrong.startswith("its question is cut") for _, wrong in faults] == [True]


def test_turns_left_out_though_there_is_room_and_divisions_without_need_are_named(template: PromptTemplate):
    whole = whole_tokens(template, RECORD)
    first, rest = replace(RECORD, pairs=PAIRS[:1]), replace(RECORD, pairs=PAIRS[1:])
    halves = [sample_of(draft_of(first)), sample_of(draft_of(rest))]
    (fault,) = rules(template, whole, "split").faults(RECORD, halves, 0, False)
    assert fault == ("claims_unfounded", "divided or without its oldest turns, though nothing makes that necessary")
    left = draft_of(replace(RECORD, pairs=PAIRS[2:]), last_only=True)
    claimed = whole - measure(left, "en", template).n_tokens
    strict = rules(template, whole - 1, "truncate_prompt", last=True)
    (fault,) = strict.faults(RECORD, [sample_of(left)], claimed, False)
    assert fault == ("claims_unfounded", "older turns are left out of a part that has room for them")
