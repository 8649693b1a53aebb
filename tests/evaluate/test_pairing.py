"""Every question gets an answer of another fault type, the same for the same seed; answers in full cover the types."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluate.pairing import Question, mispair
from tasks.evaluate.selection import batches_by_length, choose_questions

KINDS = st.sampled_from(["", "A1", "B2", "C3", "D4"])
QUESTIONS = st.lists(st.tuples(KINDS, st.sampled_from(["p", "q", "r", "s", "t"])), max_size=40).map(
    lambda rows: [Question(f"s{i:03d}", kind, answer) for i, (kind, answer) in enumerate(rows)]
)


def fits(one: Question, other: Question) -> bool:
    """As the design says it."""
    return one != other and one.answer != other.answer and (one.fault_type != other.fault_type or not one.fault_type)


@given(QUESTIONS, st.integers(0, 99))
def test_a_question_is_unpaired_only_when_no_answer_fits(questions, seed):
    by_id = {q.sample_id: q for q in questions}
    pairs = mispair(questions, seed)
    assert pairs.keys() == by_id.keys()
    for sample_id, other in pairs.items():
        if other is None:
            assert not any(fits(by_id[sample_id], q) for q in questions)
        else:
            assert fits(by_id[sample_id], by_id[other])


@given(QUESTIONS, st.integers(0, 99), st.randoms())
def test_the_order_of_the_samples_does_not_matter(questions, seed, random):
    shuffled = list(questions)
    random.shuffle(shuffled)
    assert mispair(shuffled, seed) == mispair(questions, seed)


@given(st.lists(st.sampled_from(["A1", "B2", "C3", "D4"]), min_size=2, max_size=60), st.integers(0, 9))
def test_every_answer_is_used_once_where_no_type_has_more_than_half(kinds, seed):
    if max(Counter(kinds).values()) * 2 > len(kinds):
        return
    pairs = mispair([Question(f"s{i:03d}", kind, f"answer {i}") for i, kind in enumerate(kinds)], seed)
    assert sorted(p for p in pairs.values() if p) == sorted(pairs)


@given(st.dictionaries(st.text("ab", min_size=1, max_size=6), KINDS), st.integers(1, 12), st.integers(0, 9))
def test_as_many_fault_types_are_asked_about_as_fit(fault_types, count, seed):
    chosen = choose_questions(fault_types, count, seed)
    named = {kind for kind in fault_types.values() if kind}
    assert len(chosen) == len(set(chosen)) == min(count, len(fault_types))
    assert len({fault_types[c] for c in chosen} - {""}) == min(count, len(named))


@given(st.lists(st.integers(1, 50)), st.integers(1, 7))
def test_batches_hold_everything_once_longest_first(lengths, size):
    batches = batches_by_length(list(zip(lengths, range(len(lengths)), strict=True)), size)
    flat = [index for batch in batches for index in batch]
    assert sorted(flat) == list(range(len(lengths)))
    assert [lengths[i] for i in flat] == sorted(lengths, reverse=True)
    assert all(len(batch) == size for batch in batches[:-1])
