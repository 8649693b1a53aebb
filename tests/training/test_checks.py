"""The samples on which a dry run checks its batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tasks.training.checks import PADDING, one_step

lengths = st.dictionaries(st.text("abc", min_size=1, max_size=4), st.integers(1, 200), min_size=1, max_size=12)


@given(lengths, st.integers(1, 1000))
def test_the_checked_step_has_no_more_tokens_than_a_micro_batch_where_two_samples_fit(found, most):
    chosen = one_step(found, most)
    assert len(chosen) == len(set(chosen)) >= min(2, len(found))
    padded = len(chosen) * (max(found[i] for i in chosen) + PADDING)
    shortest = sorted(found.values())[:2]
    assert padded <= most or (len(chosen) <= 2 and 2 * (max(shortest) + PADDING) > most)


def test_its_samples_are_as_unequal_as_fits():
    assert one_step({"a": 5, "b": 10, "c": 50, "d": 90}, 120) == ["a", "c"]
