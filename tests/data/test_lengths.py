"""Bucket edges are the best there are, and samples that would teach nothing are named."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.parameters import DataParameters
from tasks.data.lengths import bucket_edges, flaw, measure_many, unusable
from tasks.data.records import Draft, Unit
from tasks.prompts import Encoded, PromptTemplate


def padded(lengths: list[int], edges: list[int]) -> int:
    return sum(next(e for e in edges if n <= e) for n in lengths)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=40), st.integers(1, 5))
def test_no_other_edges_pad_less(lengths, buckets):
    edges = bucket_edges(lengths, buckets)
    distinct = sorted(set(lengths))
    assert edges[-1] == max(lengths)
    assert len(edges) == min(buckets, len(distinct))
    others = itertools.combinations(distinct[:-1], len(edges) - 1)
    assert padded(lengths, edges) == min(padded(lengths, [*inner, distinct[-1]]) for inner in others)


def test_a_million_lengths_of_ten_thousand_values_are_no_trouble():
    lengths = np.repeat(np.arange(1, 10_001), 100)
    steps = np.diff([0, *bucket_edges(lengths, 4)])
    assert len(steps) == 4
    assert max(abs(steps - 2500)) <= 2  # evenly spread lengths have evenly spread edges


@pytest.mark.parametrize(
    ("ids", "start", "reason"),
    [
        ([5, 6, 7], 1, "no_end_token"),
        ([5, 6, 2], 1, ""),
        ([5, 2], 1, "no_trainable_token"),
        ([5, 6, 2, 2], 1, "doubled_end_token"),
        ([1, 1, 5, 6, 2], 3, "doubled_begin_token"),
    ],
)
def test_what_would_teach_nothing_or_never_to_stop_is_named(tiny_model: Path, ids, start, reason):
    template = PromptTemplate.load(tiny_model)
    template.tokenizer.bos_token_id, template.tokenizer.eos_token_id = 1, 2
    assert flaw(Encoded(ids, start), "", "answer", template) == reason


def test_a_draft_without_an_answer_is_unusable_and_an_over_long_one_only_with_a_drop_list(tiny_model: Path):
    template = PromptTemplate.load(tiny_model)
    unit = Unit("f", "#1")
    drafts = [Draft(unit, "note", plain=" "), Draft(unit, "note", plain="belt " * 30)]
    empty, long = measure_many(drafts, "en", template)
    assert unusable(empty, DataParameters()) == "no_trainable_token"
    assert unusable(long, DataParameters(max_length=20)) == ""
    assert unusable(long, DataParameters(max_length=20, over_long="drop_list")) == "over_long"
