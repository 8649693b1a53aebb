"""The verifier's search for leaks finds every pair that a comparison of all pairs finds, and no other."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.verify.data_leaks import HeldOut
from tasks.verify.data_texts import THRESHOLD, fold, grams_of, similarity

WORDS = ("spindle", "belt", "主轴", "皮带", "e101", "loud", "oil", "更换", "pump", "0042")
texts = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=14).map(" ".join), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(texts, texts)
def test_no_near_pair_is_missed_and_none_is_made_up(held_out: list[str], trained: list[str]):
    sought, others = ([fold(text) for text in given_texts] for given_texts in (held_out, trained))
    index = HeldOut(sought)
    index.compare(others)
    sets = [grams_of(text) for text in others]
    wanted = {
        number
        for number, text in enumerate(sought)
        if any(similarity(grams_of(text), other) >= THRESHOLD for other in sets)
    }
    assert index.near == wanted
